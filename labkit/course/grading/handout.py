"""What a class is handed: notebooks without answers and outputs, as a folder, for nbgrader, or with the workbook."""

from __future__ import annotations

import posixpath
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from labkit.course import syntax
from labkit.course.grading.submissions import answers_in
from labkit.course.lessons import LINK
from labkit.repository import NOTEBOOKS, REPOSITORY, chosen_notebooks

CONFIG = '''"""nbgrader's settings for this course.

A cell that holds a skeleton is handed out as it is. Answers are judged in confined processes, with cases of each
student's own; LABKIT_GRADING_SECRET in the environment keeps students from finding these out.
"""

from labkit.course.grading.nbgrader_steps import configure

configure(get_config())
'''


class HoldsAnswer(ValueError):
    """A notebook that is to be handed out has a complete answer in it; the message names the cell."""


def without_outputs(page: Path) -> NotebookNode:
    """Return a notebook without outputs. Raises HoldsAnswer where an exercise's cell is no skeleton any more."""
    notebook = nbformat.read(page, as_version=4)
    for name, code in answers_in(notebook).items():
        if syntax.is_answered(code, name.partition(".")[2]):
            what = f"the cell `%%answer {name}` holds an answer, not a skeleton with `...`"
            raise HoldsAnswer(f"{page.name}: {what}; `git checkout {page.name}` brings the skeleton back")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def _link(notebook: NotebookNode, addresses: Mapping[str, str]) -> NotebookNode:
    """Lead links to other notebooks to their addresses; a link to one that is not handed out becomes its text."""

    def led(link: re.Match) -> str:
        file, sign, anchor = link[2].partition("#")
        if not file.endswith(".ipynb"):
            return link[0]
        return f"[{link[1]}]({addresses[file]}{sign}{anchor})" if file in addresses else link[1]

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(led, cell.source)
    return notebook


def hand_out(folder: Path, names: Sequence[str] = (), notebooks: Path = NOTEBOOKS) -> list[Path]:
    """Write the notebooks into a new folder, and a zip of the same name beside it; return the notebooks.

    Raises HoldsAnswer, and ValueError for a name that fits no notebook or a folder with other things in it; then
    nothing is written.
    """
    pages = chosen_notebooks(names, notebooks)
    ready = {page.name: without_outputs(page) for page in pages}
    if folder.exists():
        if others := [entry.name for entry in folder.iterdir() if entry.suffix not in (".ipynb", ".md")]:
            raise ValueError(f"{folder} holds {others[0]}, which is of no handout, so it is not replaced")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name, notebook in ready.items():
        nbformat.write(_link(notebook, {other: other for other in ready}), folder / name)
    _copy_texts(notebooks, folder)
    with zipfile.ZipFile(folder.with_name(f"{folder.name}.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{folder.name}/{file.name}")
    return [folder / name for name in ready]


def _copy_texts(notebooks: Path, folder: Path) -> None:
    """Copy the glossary, which the notebooks link to."""
    for text in sorted(notebooks.glob("*.md")):
        shutil.copy(text, folder)


def set_up_nbgrader(course: Path, names: Sequence[str] = (), notebooks: Path = NOTEBOOKS) -> list[str]:
    """Write nbgrader's folder of a course: an assignment for each notebook that has exercises, and its settings.

    Returns the assignments. Submissions and grades that lie there stay. Raises as `hand_out`.
    """
    ready = {page: without_outputs(page) for page in chosen_notebooks(names, notebooks)}
    assignments = [page.stem for page, notebook in ready.items() if answers_in(notebook)]
    addresses = {f"{name}.ipynb": f"../{name}/{name}.ipynb" for name in assignments}  # as students have them, too
    for page, notebook in ready.items():
        if page.stem in assignments:
            source = course / "source" / page.stem
            source.mkdir(parents=True, exist_ok=True)
            nbformat.write(_link(notebook, addresses), source / page.name)
            _copy_texts(notebooks, source)
    course.mkdir(parents=True, exist_ok=True)
    (course / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    return assignments


FOLDER = "workbook"  # in the archive
# Named, and not all that git tracks: an archive of the workbook is a full checkout, too.
HANDED_OUT = (
    ".gitignore",
    "Makefile",
    "README.md",
    "cluster.example.toml",
    "pyproject.toml",
    "requirements.txt",
    "data/models/*",
    "data/published/*",
    "data/recorded/**/*",
    "labkit/**/README.md",
    "labkit/**/*.py",
    "labkit/**/*.csv",
    "labkit/tools/lab_settings/*",
    "notebooks/lessons/**/*.py",
    "notebooks/lessons/**/*.csv",
)
# Without the grading room, `lesson.solution` says that the teacher has the solutions. What draws a student's cases, and
# what results are compared with, is in exercises.py and theory.py, which checks need.
TEACHERS = re.compile(r"/solutions\.py$|^labkit/course/grading/|^labkit/tools/(grade|handout|mark)\.py$|/\.")


def write_package(handout: Path) -> Path:
    """Write the workbook with the notebooks of a handout as an archive beside it; return the archive."""
    files = {f"notebooks/{page.name}": page for page in sorted(handout.iterdir())}
    files |= _code_and_data()
    archive = handout.with_name(f"{handout.name}-workbook.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for name, file in files.items():
            content = _page_for_handout(name, file, files) if file.suffix == ".md" else file.read_bytes()
            package.writestr(f"{FOLDER}/{name}", content)
    return archive


def _code_and_data() -> dict[str, Path]:
    """Return the files that are handed out beside the notebooks, by their names in the workbook."""
    files = sorted(file for pattern in HANDED_OUT for file in REPOSITORY.glob(pattern) if file.is_file())
    named = {file.relative_to(REPOSITORY).as_posix(): file for file in files}
    return {name: file for name, file in named.items() if not TEACHERS.search(name)}


def _page_for_handout(name: str, page: Path, files: dict[str, Path]) -> str:
    """Return a page whose links to files that are not handed out became their texts."""

    def led(link: re.Match) -> str:
        file = link[2].partition("#")[0]
        here = posixpath.normpath(posixpath.join(posixpath.dirname(name), file))
        return link[0] if not file or "://" in file or here in files else link[1]

    return LINK.sub(led, page.read_text(encoding="utf-8"))
