"""Stores what nbval compares: `python -m labkit.batch.store 02` runs a notebook and keeps its checked cells' outputs.

All other outputs are left out, as the notebooks' rules want it. Look at the difference before you commit it.
"""

import sys
import tempfile
from pathlib import Path

import nbformat

from labkit.batch.execute import execute
from labkit.report.record import OK
from labkit.repository import chosen_notebooks

CHECKED_TAG = "nbval-check-output"


def store_outputs(path: Path, executed: Path) -> int:
    """Copies the outputs of the checked cells from the executed notebook into the source; gives how many cells."""
    source, ran = nbformat.read(path, as_version=4), nbformat.read(executed, as_version=4)
    outputs = {cell["id"]: cell.get("outputs", []) for cell in ran.cells}
    kept = 0
    for number, cell in enumerate((cell for cell in source.cells if cell.cell_type == "code"), 1):
        checked = CHECKED_TAG in cell.metadata.get("tags", [])
        kept += checked
        # nbval compares a cell only if it was run: its place in the notebook, the same for everyone, is its number.
        cell.execution_count = number if checked else None
        cell.outputs = outputs[cell["id"]] if checked else []
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    nbformat.write(source, path)
    return kept


def main(names: list[str]) -> int:
    """Run the named notebooks, or all, and store their checked outputs; a notebook that fails is left as it was."""
    failed = 0
    for path in chosen_notebooks(names):
        with tempfile.TemporaryDirectory() as folder:
            executed = Path(folder, path.name)
            outcome = execute(path, executed, {}, {"desc": path.stem, "leave": False})
            if outcome.status != OK:
                print(f"{path.stem}: {outcome.status}: {outcome.why}", file=sys.stderr)
                failed += 1
                continue
            print(f"{path.stem}: {store_outputs(path, executed)} checked cells stored")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
