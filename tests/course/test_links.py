"""Every link of the copies that a student works on leads to a file that is there: JupyterLab opens none above them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from labkit.course.grading.handout import hand_out
from labkit.course.lessons import LINK
from labkit.tools import handout, work


def refreshed(folder: Path) -> None:
    """Make the folder that `make lab` opens."""
    assert work.main(["--folder", str(folder), "refresh"]) == 0


def unpacked(folder: Path) -> None:
    """Make the folder that a student unpacks."""
    assert handout.main(["--folder", str(folder.with_name("class"))]) == 0
    with zipfile.ZipFile(folder.with_name("class-workbook.zip")) as archive:
        archive.extractall(folder)


MADE = {
    "make lab": refreshed,
    "make handout": hand_out,
    "make handout, the student's package": unpacked,
    "make handout ARGS='02 12'": lambda folder: hand_out(folder, ["02", "12"]),
}


def links(page: Path) -> Iterator[str]:
    """Yield the targets in a page, or in the texts of a notebook, without code."""
    if page.suffix == ".md":
        texts = [page.read_text(encoding="utf-8")]
    else:
        texts = [cell.source for cell in nbformat.read(page, 4).cells if cell.cell_type == "markdown"]
    for text in texts:
        text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
        yield from (target for _, target in LINK.findall(text))
        yield from re.findall(r"(?:href|src)=[\"']([^\"']+)", text)


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_every_relative_link_leads_to_a_file_of_the_folder(tmp_path, made):
    folder = tmp_path / "folder"
    made(folder)
    pages = [page for page in folder.rglob("*") if page.suffix in (".md", ".ipynb")]
    found = [(page, link.partition("#")[0]) for page in pages for link in links(page) if "://" not in link]
    assert len(found) > 20
    for page, file in found:
        target = (page.parent / file).resolve() if file else page
        assert target.is_file() and target.is_relative_to(folder.resolve()), f"{page.name} links to {file}"
