"""A student's copy takes the workbook's changes, and keeps what the student did; git never sees it."""

import shutil
import subprocess

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.course import copies
from labkit.tools import work as command


def notebook(**sources: str):
    """Return a notebook with a cell per keyword: its id and its source; "# …" is text."""
    cells = []
    for name, text in sources.items():
        make = new_markdown_cell if text.startswith("# ") else new_code_cell
        cells.append(make(text, id=name))
    return new_notebook(cells=cells)


@pytest.fixture
def course(tmp_path):
    """Return a function that publishes notebook 02 and refreshes the copies; it returns what was said of it."""
    pages, work = tmp_path / "notebooks", tmp_path / "work"
    pages.mkdir()

    def publish(**sources: str) -> str:
        nbformat.write(notebook(**sources), pages / "02_copy.ipynb")
        return " ".join(copies.refresh(work, pages))

    publish.work, publish.pages, publish.copy = work, pages, work / "02_copy.ipynb"
    return publish


def edit(file, change):
    """Change a copy as JupyterLab does, on the disk."""
    content = nbformat.read(file, as_version=4)
    change({cell.id: cell for cell in content.cells}, content.cells)
    nbformat.write(content, file)


def read(file) -> dict[str, str]:
    return {cell.id: cell.source for cell in nbformat.read(file, as_version=4).cells}


def run(cell, text="1.5"):
    """Give a cell the output of a run."""
    cell.execution_count = 7
    cell.outputs = [new_output("execute_result", {"text/plain": text}, execution_count=7)]


def test_cells_that_were_not_edited_are_refreshed_and_edited_ones_stay(course):
    assert "new" in course(title="# Title", one="1", two="2", mine="...")
    edit(course.copy, lambda cells, _: (cells["mine"].update(source="answer"), run(cells["one"]), run(cells["two"])))
    assert "refreshed" in course(title="# Better", one="1", two="1 + 1", mine="...")
    assert read(course.copy) == {"title": "# Better", "one": "1", "two": "1 + 1", "mine": "answer"}
    kept = {cell.id: cell for cell in nbformat.read(course.copy, as_version=4).cells}
    assert kept["one"].outputs[0].data["text/plain"] == "1.5", "a cell whose source is the same keeps its output"
    assert (kept["two"].outputs, kept["two"].execution_count) == ([], None), "that belongs to the old code"


def test_a_cell_that_both_changed_stays_the_students_and_is_told(course):
    course(one="1", mine="...")
    edit(course.copy, lambda cells, _: cells["mine"].update(source="answer"))
    assert "1 cell that you edited" in course(one="1", mine="...  # a better hint")
    assert read(course.copy)["mine"] == "answer"
    assert course(one="1", mine="...  # a better hint") == "", "and it is told once"


def test_cells_that_the_student_added_deleted_or_moved_stay_so(course):
    course(a="1", b="2", c="3", d="4")

    def change(cells, order):
        order.remove(cells["b"])
        order.insert(1, new_code_cell("note", id="own"))
        order.append(order.pop(order.index(cells["c"])))

    edit(course.copy, change)
    course(a="1", b="2", new="5", c="3", d="changed", last="6")
    assert read(course.copy) == {"a": "1", "own": "note", "new": "5", "d": "changed", "last": "6", "c": "3"}


def test_cells_that_the_workbook_removed_go_unless_the_student_edited_them(course):
    course(a="1", b="2", c="3")
    edit(course.copy, lambda cells, _: cells["b"].update(source="mine"))
    course(a="1")
    assert read(course.copy) == {"a": "1", "b": "mine"}


def test_cells_take_the_order_that_the_workbook_gives_them(course):
    course(a="1", b="2", c="3")
    edit(course.copy, lambda _, order: order.insert(2, new_code_cell("note", id="own")))
    course(c="3", a="1", b="2")
    assert [*read(course.copy)] == ["c", "a", "b", "own"]


def test_without_the_original_whatever_differs_counts_as_edited(course):
    course(one="1", mine="...")
    edit(course.copy, lambda cells, _: cells["mine"].update(source="answer"))
    shutil.rmtree(course.work / copies.ORIGINALS)
    course(one="1", mine="....", new="2")
    assert read(course.copy) == {"one": "1", "mine": "answer", "new": "2"}


def test_a_copy_that_is_no_notebook_stays_and_is_told(course):
    course(one="1")
    course.copy.write_text("{half a noteb")
    assert "no notebook" in course(one="2")
    assert course.copy.read_text() == "{half a noteb"


def test_text_pages_are_copied_and_edited_ones_stay(course):
    (course.pages / "glossary.md").write_text("NCCL: a library")
    course(one="1")
    glossary = course.work / "glossary.md"
    (course.pages / "glossary.md").write_text("NCCL: NVIDIA's library")
    course(one="1")
    assert glossary.read_text() == "NCCL: NVIDIA's library"
    glossary.write_text("my notes")
    (course.pages / "glossary.md").write_text("NCCL: more")
    course(one="1")
    assert glossary.read_text() == "my notes"


def test_reset_hands_out_again_and_puts_the_copy_aside(course, capsys, monkeypatch):
    course(one="1")
    edit(course.copy, lambda cells, _: cells["one"].update(source="mine"))
    assert "as handed out" in copies.reset(course.work, "02", course.pages)
    assert read(course.copy) == {"one": "1"}
    (aside,) = (course.work / copies.EARLIER).glob("*.ipynb")
    assert read(aside) == {"one": "mine"}
    course(one="2")
    assert read(course.copy) == {"one": "2"}, "what was reset is refreshed again"


@pytest.mark.parametrize("name", ["", "7", "99_none", ".."])
def test_reset_of_no_notebook_names_those_that_there_are(course, name):
    course(one="1")
    with pytest.raises(ValueError, match="02_copy"):
        copies.reset(course.work, name, course.pages)


def test_of_a_path_the_name_counts(course):
    course(one="1")
    edit(course.copy, lambda cells, _: cells["one"].update(source="mine"))
    assert copies.reset(course.work, "../elsewhere/02_copy.ipynb", course.pages).startswith(str(course.copy))
    assert read(course.copy) == {"one": "1"}


def test_the_commands_say_what_they_did_and_what_is_wrong(tmp_path, capsys):
    folder = ["--folder", str(tmp_path / "work")]
    assert command.main([*folder, "refresh"]) == 0
    assert "new copies" in capsys.readouterr().out
    assert command.main([*folder, "reset", "02"]) == 0
    assert "as handed out" in capsys.readouterr().out
    assert command.main([*folder, "reset", "no_such"]) == 2
    assert "02_broadcast" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert command.main(["--folder", str(tmp_path / "file"), "refresh"]) == 2
    assert "LABKIT_WORK" in capsys.readouterr().err


def test_git_never_sees_a_copy(tmp_path):
    """So that `git pull` meets no notebook that a student has executed."""
    shutil.copy(copies.REPOSITORY / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    ignored = [subprocess.run(["git", "check-ignore", name], cwd=tmp_path) for name in ("work/02.ipynb", "02.ipynb")]
    assert [done.returncode for done in ignored] == [0, 1]


def test_a_copy_has_no_outputs_and_is_not_refreshed_for_them(course):
    """They would give the answers away; and a chart that is stored anew is no change of the page."""
    course(one="1")
    edit(course.pages / "02_copy.ipynb", lambda cells, _: run(cells["one"], "42"))
    assert copies.refresh(course.work, course.pages) == []
    copies.reset(course.work, "02", course.pages)
    assert "42" not in course.copy.read_text(encoding="utf-8")
    assert "42" not in (course.work / copies.ORIGINALS / "02_copy.ipynb").read_text(encoding="utf-8")
