"""Gives the tests small notebooks to run, break and read."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook


@pytest.fixture
def write_notebook():
    """Gives a function that writes a notebook of alternating text and code cells and returns its path.

    A string that starts with "# " or "text:" is a text cell; a pair is a code cell and its tags.
    """

    def write(path, *cells):
        path.parent.mkdir(parents=True, exist_ok=True)
        notebook = new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
        for cell in cells:
            source, tags = cell if isinstance(cell, tuple) else (cell, [])
            text = source.startswith(("# ", "text:"))
            made = new_markdown_cell(source) if text else new_code_cell(source, metadata={"tags": tags})
            notebook.cells.append(made)
        nbformat.write(notebook, path)
        return path

    return write
