"""A copy whose cells have lost their ids takes the workbook's changes, and loses nothing of the student's."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.course import copies

WAS = {
    "title": "# Title",
    "run": "x = 1",
    "text": "# Some text",
    "again": "x = 1",
    "ask": "%%answer start.place\ndef place(rank, gpus_per_node):\n    ...",
    "plot": "chart(x)",
    "end": "# The end",
}
ANSWER = "\n%%answer start.place  # mine\ndef place(rank, gpus_per_node):\n    return divmod(rank, gpus_per_node)"


def page(sources: dict[str, str]):
    """Return a notebook with a cell per id; "# …" is text."""
    make = {True: new_markdown_cell, False: new_code_cell}
    return new_notebook(cells=[make[text.startswith("# ")](text, id=name) for name, text in sources.items()])


def _colab(content):
    content.update(nbformat_minor=0)
    for cell in content["cells"]:
        cell["metadata"]["id"] = cell.pop("id", "new-cell")


def _without(content):
    content.update(nbformat_minor=4)
    for cell in content["cells"]:
        cell.pop("id", None)


def _bare(content):
    for cell in content["cells"]:
        for field in ("id", "metadata", "outputs", "execution_count"):
            cell.pop(field, None)


def _renamed(content):
    for place, cell in enumerate(content["cells"]):
        cell["id"] = f"cell{place:04d}"


def _same_id(content):
    for cell in content["cells"]:
        cell["id"] = "same"


def _trimmed(content):
    _without(content)
    for cell in content["cells"]:
        cell["source"] = "".join(cell["source"]) + "  \n"


def _format_3(content):
    _without(content)
    cells = [dict(cell) for cell in content.pop("cells")]
    for cell in cells:
        if cell["cell_type"] == "code":
            cell.update(input=cell.pop("source"), language="python", collapsed=False, prompt_number=None)
            cell.pop("execution_count")
    content.update(nbformat=3, nbformat_minor=0, worksheets=[{"cells": cells, "metadata": {}}])


PROGRAMS = [_colab, _without, _bare, _renamed, _same_id, _trimmed, _format_3]


@pytest.fixture
def work(tmp_path):
    """Return the folder of a student who has just got the notebook; `publish` hands out its next version."""
    (tmp_path / "notebooks").mkdir()
    publish(tmp_path, WAS)
    return tmp_path


def publish(folder, sources) -> str:
    nbformat.write(page(sources), folder / "notebooks" / "02_copy.ipynb")
    return " ".join(copies.refresh(folder / "work", folder / "notebooks"))


def save(folder, program, **edited: str):
    """Save the copy as a program does, with some cells edited; "" is a cell that the student deleted."""
    file = folder / "work" / "02_copy.ipynb"
    content = json.loads(file.read_text())
    for cell in [*content["cells"]]:
        if (text := edited.pop(cell["id"], None)) is not None:
            cell["source"] = text
            if not text:
                content["cells"].remove(cell)
    content["cells"] += [json.loads(json.dumps(new_code_cell(text))) for text in edited.values()]
    program(content)
    file.write_text(json.dumps(content))


def texts(folder) -> list[str]:
    """Return the texts of the copy, which is valid and has its ids."""
    content = nbformat.from_dict(json.loads((folder / "work" / "02_copy.ipynb").read_text()))
    nbformat.validate(content)
    assert content.nbformat_minor >= 5 and all(cell.id for cell in content.cells)
    return ["".join(cell.source).rstrip() for cell in content.cells]


@pytest.mark.parametrize("program", PROGRAMS)
def test_corrections_arrive_and_the_students_work_stays(work, program):
    save(work, program, ask=ANSWER, plot="chart(x, log=True)", own="my = 2")
    now = {**WAS, "text": "# Better text", "again": "x = 2"}
    now = {**dict([*now.items()][:3]), "new": "# New", **now}
    assert publish(work, now) == "02_copy.ipynb: refreshed"
    wanted = [
        "# Title",
        "x = 1",
        "# Better text",
        "# New",
        "x = 2",
        ANSWER,
        "chart(x, log=True)",
        "# The end",
        "my = 2",
    ]
    assert texts(work) == wanted
    assert publish(work, {**now, "title": "# Last"}) == "02_copy.ipynb: refreshed"
    assert texts(work) == ["# Last", *wanted[1:]], "what was matched once keeps its id"


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_both_changed_stays_the_students_and_is_told(work, program):
    save(work, program, ask=ANSWER, plot="chart(x, log=True)")
    told = publish(work, {**WAS, "ask": f"{WAS['ask']}  # a hint", "plot": "chart(x, y)"})
    assert "except 2 cells that you edited" in told
    assert {ANSWER, "chart(x, log=True)"} < {*texts(work)} and len(texts(work)) == len(WAS)


@pytest.mark.parametrize("program", [_without, _renamed])
def test_a_changed_cell_that_is_not_found_comes_back_and_is_told(work, program):
    save(work, program, plot="", title="")
    told = publish(work, {**WAS, "plot": "chart(x, y)"})
    assert told.endswith(
        "is added: your copy has lost the ids of its cells, and which of them are yours cannot be told"
    )
    assert "chart(x, y)" in texts(work) and "# Title" not in texts(work)


def test_without_the_original_all_that_differs_is_the_students(work):
    save(work, _without, ask=ANSWER, text="# My text")
    (work / "work" / copies.ORIGINALS / "02_copy.ipynb").unlink()
    publish(work, {**WAS, "end": "# Another end"})
    assert {ANSWER, "# My text"} < {*texts(work)}


DAMAGED = [
    '{"nbformat": 4}',
    "[]",
    '{"nbformat": 3, "nbformat_minor": "x"}',
    '{"nbformat": 1, "cells": [{"cell_type": "x"}]}',
]
DAMAGED += [
    '{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [{"cell_type": "x", "source": ""}]}',
    "[" * 99_999,
]


@pytest.mark.parametrize("text", DAMAGED)
def test_no_copy_ends_the_refreshing_and_its_change_is_not_forgotten(work, text):
    (work / "work" / "02_copy.ipynb").write_text(text)
    original = (work / "work" / copies.ORIGINALS / "02_copy.ipynb").read_text()
    assert "no notebook" in publish(work, {**WAS, "end": "# Another end"})
    assert (work / "work" / "02_copy.ipynb").read_text() == text
    assert (work / "work" / copies.ORIGINALS / "02_copy.ipynb").read_text() == original
