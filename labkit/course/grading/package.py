"""The student's package: the workbook without reference solutions, hidden cases and what only a teacher needs."""

from __future__ import annotations

import posixpath
import re
import zipfile
from pathlib import Path

from labkit.course.lessons import LINK
from labkit.repository import REPOSITORY

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
# Without the grading room, `lesson.solution` says that the teacher has the solutions.
TEACHERS = re.compile(r"/(solutions|hidden)\.py$|^labkit/course/grading/|^labkit/tools/(grade|handout|mark)\.py$|/\.")


def write_package(handout: Path) -> Path:
    """Write the workbook with the notebooks of a handout as an archive beside it; return the archive."""
    files = {f"notebooks/{page.name}": page for page in sorted(handout.iterdir())}
    files |= _code_and_data()
    archive = handout.with_name(f"{handout.name}-workbook.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for name, file in files.items():
            content = _linked(name, file, files) if file.suffix == ".md" else file.read_bytes()
            package.writestr(f"{FOLDER}/{name}", content)
    return archive


def _code_and_data() -> dict[str, Path]:
    """Return the files that are handed out beside the notebooks, by their names in the workbook."""
    files = sorted(file for pattern in HANDED_OUT for file in REPOSITORY.glob(pattern) if file.is_file())
    named = {file.relative_to(REPOSITORY).as_posix(): file for file in files}
    return {name: file for name, file in named.items() if not TEACHERS.search(name)}


def _linked(name: str, page: Path, files: dict[str, Path]) -> str:
    """Return a page whose links to files that are not handed out became their texts."""

    def led(link: re.Match) -> str:
        file = link[2].partition("#")[0]
        here = posixpath.normpath(posixpath.join(posixpath.dirname(name), file))
        return link[0] if not file or "://" in file or here in files else link[1]

    return LINK.sub(led, page.read_text(encoding="utf-8"))
