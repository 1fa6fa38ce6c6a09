"""What a class is handed: notebooks without answers and outputs, as a folder, and with the workbook."""

from __future__ import annotations

import posixpath
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Container, Sequence
from pathlib import Path, PurePosixPath

import nbformat
from nbformat import NotebookNode

from labkit.course import syntax
from labkit.course.copies import handed_out
from labkit.course.grading.submissions import answers_in
from labkit.course.lessons import LINK
from labkit.repository import NOTEBOOKS, REPOSITORY, chosen_notebooks


def without_outputs(page: Path) -> NotebookNode:
    """Return a notebook without outputs. Raises ValueError where an exercise's cell is no skeleton any more."""
    notebook = nbformat.reads(handed_out(page), as_version=4)
    for name, code in answers_in(notebook).items():
        if syntax.state_of(code, name.partition(".")[2]) != syntax.OPEN:
            what = f"the cell `%%answer {name}` holds an answer, not a skeleton with `...`"
            raise ValueError(f"{page.name}: {what}; `git checkout {page.name}` brings the skeleton back")
    return notebook


def hand_out(folder: Path, names: Sequence[str] = (), notebooks: Path = NOTEBOOKS) -> list[Path]:
    """Write the notebooks into a new folder, and a zip of the same name beside it; return the notebooks.

    Raises ValueError for an answer in a notebook, a name that fits none, or a folder with other things in it; then
    nothing is written.
    """
    ready = {page.name: without_outputs(page) for page in chosen_notebooks(names, notebooks)}
    if folder.exists():
        if others := [entry.name for entry in folder.iterdir() if entry.suffix not in (".ipynb", ".md")]:
            raise ValueError(f"{folder} holds {others[0]}, which is of no handout, so it is not replaced")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    texts = sorted(notebooks.glob("*.md"))  # the glossary, which the notebooks link to
    for text in texts:
        shutil.copy(text, folder)
    for name, notebook in ready.items():
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = _without_dead_links(cell.source, name, {*ready, *(text.name for text in texts)})
        nbformat.write(notebook, folder / name)
    shutil.make_archive(str(folder), "zip", folder.parent, folder.name)
    return [folder / name for name in ready]


def _without_dead_links(text: str, page: str, files: Container[str]) -> str:
    """Return a page's text, its links to files that are not handed out as their texts."""

    def led(link: re.Match) -> str:
        file = link[2].partition("#")[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
        return link[0] if not file or "://" in file or target in files else link[1]

    return LINK.sub(led, text)


FOLDER = "workbook"  # in the archive
# Named, and not all that git tracks: an archive of the workbook is a full checkout, too.
HANDED_OUT = (
    ".gitignore",
    "cluster.example.toml",
    "pyproject.toml",
    "requirements.txt",
    "data/models/*",
    "data/published/**/*",
    "data/recorded/**/*",
    "labkit/**/README.md",
    "labkit/**/*.py",
    "labkit/**/*.csv",
    "labkit/**/*.css",
    "labkit/tools/lab_settings/*",
    "notebooks/lessons/**/*.py",
    "notebooks/lessons/**/*.csv",
)
# Without the grading room, `lesson.solution` says that the teacher has the solutions. What draws a student's cases, and
# what results are compared with, is in exercises.py and theory.py, which checks need.
TEACHERS = re.compile(r"/solutions\.py$|^labkit/course/grading/|^labkit/tools/(grade|handout)\.py$|/\.")


STUDENTS = Path(__file__).with_name("package")  # what the package has instead of the workbook's own
NOT_FOR_STUDENTS = ("test", "test-all", "handout", "grade", "lint", "lock")  # what these targets need is left out


def write_package(handout: Path) -> Path:
    """Write the workbook with the notebooks of a handout as an archive beside it; return the archive."""
    files = {f"notebooks/{page.name}": page for page in sorted(handout.iterdir())}
    files |= _code_and_data() | {file.name: file for file in sorted(STUDENTS.iterdir())}
    files["Makefile"] = REPOSITORY / "Makefile"
    archive = handout.with_name(f"{handout.name}-workbook.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        parents = {parent.as_posix() for name in files for parent in PurePosixPath(FOLDER, name).parents}
        for folder in sorted(parents - {"."}):
            package.mkdir(folder, 0o755)
        for name, file in files.items():
            content = file.read_bytes()
            if name == "Makefile":
                content = students_makefile(content.decode()).encode()
            if file.suffix == ".md":
                content = _without_dead_links(content.decode(), name, files).encode()
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", time.localtime()[:6])
            entry.external_attr = (stat.S_IFREG | 0o644) << 16  # readable by all users of a hub
            package.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return archive


def students_makefile(text: str) -> str:
    """Return the Makefile without the targets that need what the package leaves out."""
    rules = re.compile(rf"^({'|'.join(NOT_FOR_STUDENTS)}):", re.MULTILINE)
    kept = "\n\n".join(part for part in text.split("\n\n") if not rules.search(part))
    phony = next(line for line in kept.splitlines() if line.startswith(".PHONY:"))
    return kept.replace(phony, " ".join(word for word in phony.split() if word not in NOT_FOR_STUDENTS))


def _code_and_data() -> dict[str, Path]:
    """Return the files that are handed out beside the notebooks, by their names in the workbook."""
    files = sorted(file for pattern in HANDED_OUT for file in REPOSITORY.glob(pattern) if file.is_file())
    named = {file.relative_to(REPOSITORY).as_posix(): file for file in files}
    return {name: file for name, file in named.items() if not TEACHERS.search(name)}
