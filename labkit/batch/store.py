"""Stores what a reader of the repository sees: `python -m labkit.batch.store 02` runs a notebook on recorded runs.

All outputs are kept, without what belongs to the machine that ran it; nbval compares them. Look at the difference
before you commit it.
"""

import base64
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from matplotlib.image import imread
from nbformat import NotebookNode
from PIL import Image

from labkit.batch.execute import execute
from labkit.report.record import OK
from labkit.repository import chosen_notebooks

PICTURE, WIDGET = "image/png", "application/vnd.jupyter.widget-view+json"
COLOURS = 32  # of a picture's palette
HALF_A_SHADE = 0.5  # of 255, on average: two drawings of one chart differ by less


def store_outputs(path: Path, executed: Path) -> int:
    """Copy all outputs from the executed notebook into the source; return how many pictures have changed."""
    source, ran = nbformat.read(path, as_version=4), nbformat.read(executed, as_version=4)
    outputs = {cell["id"]: cell.get("outputs", []) for cell in ran.cells}
    changed = 0
    for number, cell in enumerate((cell for cell in source.cells if cell.cell_type == "code"), 1):
        before = [output for output in cell.outputs if PICTURE in output.get("data", {})]
        # nbval compares a cell only if it was run: its place in the notebook, the same for everyone, is its number.
        cell.execution_count = number
        cell.outputs = [kept(output, number) for output in outputs[cell["id"]]]
        now = [output for output in cell.outputs if PICTURE in output.get("data", {})]
        for old, new in zip(before, now, strict=False):
            if is_same_picture(old["data"][PICTURE], new["data"][PICTURE]):
                new["data"][PICTURE] = old["data"][PICTURE]
        changed += sum(old["data"][PICTURE] != new["data"][PICTURE] for old, new in zip(before, now, strict=False))
        changed += abs(len(before) - len(now))
    nbformat.write(source, path)
    return changed


def kept(output: NotebookNode, number: int) -> NotebookNode:
    """Return what is stored of an output: a picture with a palette, of a widget its text, and no LaTeX."""
    if "execution_count" in output:
        output.execution_count = number
    data: dict[str, Any] = output.get("data", {})
    if PICTURE in data:
        data[PICTURE] = with_palette(data[PICTURE])
        data.pop("text/html", None)  # the picture once more, for its alternative text, which its metadata keep
    for kind in (WIDGET, "text/latex"):
        data.pop(kind, None)
    return output


def with_palette(picture: str) -> str:
    """Return a PNG, in base64, with at most COLOURS colours, and without who drew it."""
    pixels = (255 * _pixels(picture)).round().astype(np.uint8)
    as_numbers: np.ndarray = pixels.astype(int) @ np.array([65536, 256, 1])  # rows of three sort slowly
    numbers, places, counts = np.unique(as_numbers, return_inverse=True, return_counts=True)
    colours = np.stack([numbers >> 16, numbers >> 8 & 255, numbers & 255], axis=-1)
    # Half of the palette are the colours of the largest areas, as they are; the others are far apart, for thin lines.
    areas = colours[np.argsort(-counts, kind="stable")[: COLOURS // 2]]
    apart = Image.fromarray(pixels).quantize(COLOURS // 2, Image.Quantize.MAXCOVERAGE, kmeans=1).getpalette() or []
    palette = np.concatenate([areas, np.reshape(apart, (-1, 3))[: COLOURS // 2]]).astype(int)
    nearest = ((colours[:, None] - palette) ** 2).sum(axis=-1).argmin(axis=-1)
    image, small = Image.fromarray(nearest[places].reshape(pixels.shape[:2]).astype(np.uint8)), io.BytesIO()
    image.putpalette(palette.astype(np.uint8).tobytes())
    image.save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def is_same_picture(old: str, new: str) -> bool:
    """Say whether two PNGs, in base64, have one size and differ by less than half a shade on average."""
    first, second = _pixels(old), _pixels(new)
    return first.shape == second.shape and 255 * float(np.abs(first - second).mean()) < HALF_A_SHADE


def _pixels(picture: str) -> np.ndarray:
    """Return a PNG's rows of red, green and blue, from 0 to 1, on white."""
    pixels = imread(io.BytesIO(base64.b64decode(picture)))
    seen = pixels[..., 3:] if pixels.shape[-1] == 4 else 1
    return pixels[..., :3] * seen + (1 - seen)


def main(names: list[str]) -> int:
    """Run the named notebooks, or all, at size=recorded, and store their outputs; one that fails is left as it was."""
    failed = 0
    for path in chosen_notebooks(names):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["LABKIT_ANSWERS"] = str(Path(folder, "answers"))  # no answer is stored, and none is shown
            executed = Path(folder, path.name)
            outcome = execute(path, executed, {"size": "recorded"}, {"desc": path.stem, "leave": False})
            if outcome.status != OK:
                print(f"{path.stem}: {outcome.status}: {outcome.why}", file=sys.stderr)
                failed += 1
                continue
            print(f"{path.stem}: stored, {store_outputs(path, executed)} pictures changed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
