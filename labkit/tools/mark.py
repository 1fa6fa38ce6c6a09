"""Marks the cells of exercises for nbgrader: `python -m labkit.tools.mark`, for all notebooks or those named."""

import sys

import nbformat

from labkit.course.grading.cells import mark
from labkit.repository import chosen_notebooks


def main(names: list[str]) -> int:
    """Mark the named notebooks, or all; a notebook that is marked already stays as it is."""
    for page in chosen_notebooks(names):
        text = page.read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
        complete = mark(notebook)
        if (marked := nbformat.writes(notebook) + "\n") != text:
            page.write_text(marked, encoding="utf-8")
        print(f"{page.stem}: {complete} exercises")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
