"""What a confined process does with an answer: it reads and calls it, and writes what it gives as lines of JSON.

Beside it lie `request.json`, the answer's own file, and under lib/ those parts of labkit that it may import.
"""

import importlib
import json
import linecache
import os
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_FRAMES = 20


def main(results: int) -> None:
    """Write what the answer's text tells, and a line for each call of its function; a call that raises is the last."""
    sys.path.insert(0, str(HERE / "lib"))
    request = json.loads((HERE / "request.json").read_text(encoding="utf-8"))
    file = HERE / request["file"]
    try:
        from labkit.course import syntax
        from labkit.engine.called_function import load_function, results_of_two_calls

        error = syntax.syntax_error(code := file.read_bytes())
        open_steps = [] if error else syntax.open_steps(code, request["function"])
        _write(results, {"syntax": error, "open": open_steps})
        if error or open_steps:
            return
        function = load_function(file, request["function"])
        drive = importlib.import_module(request["driver"]).drive if request["driver"] else None
        _write(results, {"loaded": True})
        for arguments in request["inputs"]:
            row = (
                drive(function, *arguments) if drive else results_of_two_calls(function, request["function"], arguments)
            )
            _write(results, {"row": row})
    except BaseException as error:  # an answer that exits is told so, and not taken for one that ended well
        _write(results, {"raised": _what_it_raises(error, file), "traceback": _from_own_line(error, file)})
        sys.exit(1)


def _write(results: int, line: dict) -> None:
    text = (json.dumps(line) + "\n").encode()
    while text:
        text = text[os.write(results, text) :]


def _what_it_raises(error: BaseException, file: Path) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    where = f" in line {frames[-1].lineno}" if frames else ""
    return (
        f"it raises {type(error).__name__}{where}: {error}"
        if str(error)
        else f"it raises {type(error).__name__}{where}"
    )


def _from_own_line(error: BaseException, file: Path) -> str:
    """Return the traceback from the student's first line on, in at most MOST_FRAMES frames."""
    linecache.checkcache()
    frames = traceback.extract_tb(error.__traceback__)
    first = next((number for number, frame in enumerate(frames) if frame.filename == str(file)), len(frames))
    kept = traceback.StackSummary.from_list(frames[first:][-MOST_FRAMES:])
    lines = [*kept.format(), *traceback.format_exception_only(error)]
    return "".join(lines).replace(f"{HERE}/", "")


if __name__ == "__main__":
    main(int(sys.argv[1]))
