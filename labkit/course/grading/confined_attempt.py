"""What a confined process does with an answer: it reads and calls it, and writes what it gives as lines of JSON.

Beside it lie `request.json`, the answer's own file, and under lib/ those parts of labkit that it may import.
"""

import importlib
import json
import linecache
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from multiprocessing import connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
        open_steps = [] if error else syntax.open_steps(code, *request["functions"])
        _write(results, {"syntax": error, "open": open_steps})
        if error or open_steps:
            return
        drive = importlib.import_module(request["driver"]).drive if request["driver"] else None
        if request["on_ranks"]:
            importlib.import_module("torch._dynamo")  # torch does at its first step, on each rank; it takes seconds
            for arguments in request["inputs"]:
                _write(results, _on_ranks(drive, file, request["functions"], arguments))
            return
        (name,) = request["functions"]
        function = load_function(file, name)
        _write(results, {"loaded": True})
        for arguments in request["inputs"]:
            row = drive(function, *arguments) if drive else results_of_two_calls(function, name, arguments)
            _write(results, {"row": row})
    except BaseException as error:  # an answer that exits is told so, and not taken for one that ended well
        _write(results, {"raised": _what_it_raises(error, file), "traceback": _from_own_line(error, file)})
        sys.exit(1)


def _on_ranks(drive: Any, file: Path, functions: list[str], arguments: list) -> dict:
    """Return what the driver gives on each rank as a row; or what the first rank raised that did.

    Each rank is a process, forked now, since importing torch takes seconds; they meet at a file, and over the loopback.
    A rank that is done stays: a connection that is closed would be an error of the others.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks: dict[Any, Any] = {}  # processes by the pipe that each writes to
        for rank in range(arguments[0]):
            reader, writer = multiprocessing.Pipe(duplex=False)
            fork = multiprocessing.get_context("fork")
            process = fork.Process(target=_be_rank, args=(writer, drive, file, functions, folder, rank, arguments))
            process.start()
            writer.close()
            ranks[reader] = process
        given: dict[Any, Any] = {}
        try:
            while len(given) < len(ranks):
                ready: list[Any] = connection.wait([*ranks.keys() - given.keys()])
                for reader in ready:
                    given[reader] = json.loads(reader.recv_bytes())
                    if "raised" in given[reader]:
                        return given[reader]
        except EOFError:  # it has ended without a word
            ranks[reader].join()
            _end(ranks.values())
            status = ranks[reader].exitcode
            os._exit(status if status >= 0 else 128 - status)
        finally:
            _end(ranks.values())
    return {"row": [given[reader]["given"] for reader in ranks]}


def _end(processes: Iterable) -> None:
    for process in processes:
        process.kill()
        process.join()


def _be_rank(writer, drive: Any, file: Path, functions: list[str], folder: str, rank: int, arguments: list) -> None:
    import torch
    import torch.distributed as dist

    from labkit.engine.called_function import load_functions

    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=arguments[0])
        world = SimpleNamespace(rank=rank, ranks=arguments[0], group=None)
        loaded = load_functions(file, *functions)
        answer = loaded if len(functions) > 1 else loaded[functions[0]]
        message = {"given": drive(answer, world, *arguments)}
    except BaseException as error:
        message = {"raised": _what_it_raises(error, file), "traceback": _from_own_line(error, file)}
    writer.send_bytes(json.dumps(message).encode())
    time.sleep(3600)


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
