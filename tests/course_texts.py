"""The course's texts, and the links in them that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat

from labkit.course import lessons as course
from labkit.repository import REPOSITORY

FOLDER = REPOSITORY / "notebooks"
LESSONS = course.lessons()
NOTEBOOKS = {lesson.name: nbformat.read(FOLDER / f"{lesson.name}.ipynb", as_version=4) for lesson in LESSONS}
GLOSSARY = (FOLDER / "glossary.md").read_text(encoding="utf-8")
ANCHORS = re.findall(r'<a id="([^"]+)"></a>', GLOSSARY)
ENTRIES = re.findall(r'<a id="([^"]+)"></a>\n\n### (.+)\n\n((?:(?!<a id|## ).*\n?)*)', GLOSSARY)


def broken(text: str, folder: Path) -> Iterator[str]:
    """Yield every link target of a text that no file, anchor or https address stands for."""
    for name, target in course.LINK.findall(re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)):
        file, _, anchor = target.partition("#")
        if target.startswith("https://"):
            if "arxiv.org" in target and not re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", target):
                yield f"{name}: {target} is no address of an arXiv abstract"
        elif file and not (folder / file).exists():
            yield f"{name}: there is no {file}"
        elif anchor and file in ("", "glossary.md") and anchor not in ANCHORS:
            yield f"{name}: the glossary has no anchor {anchor}"
