"""Writes the report's copy of the glossary, and leads the pages' links between notebooks and to it to the report."""

import re
from collections.abc import Collection
from pathlib import Path

from nbconvert.filters import markdown2html

from .frame import write_page_of

SOURCE, PAGE, HOME = "glossary.md", "glossary.html", "index.html"
_NOTEBOOK = re.compile(r'href="(\d\d_\w+)\.ipynb(#[^"]*)?"')
_GLOSSARY = re.compile(rf'href="{re.escape(SOURCE)}(#[^"]*)?"')


def within_report(html: str, names: Collection[str]) -> str:
    """Return a page whose links lead to the report's own pages.

    `names` are the notebooks that have a page or will have one; a link to another notebook leads to the first page.
    """

    def to_page(link: re.Match) -> str:
        return f'href="{link[1]}.html{link[2] or ""}"' if link[1] in names else f'href="{HOME}"'

    return _GLOSSARY.sub(lambda link: f'href="{PAGE}{link[1] or ""}"', _NOTEBOOK.sub(to_page, html))


def write_glossary(folder: Path, report: Path) -> None:
    """Write the glossary of the notebooks' folder as a page of the report; nothing where there is no glossary."""
    source = folder / SOURCE
    if source.is_file():
        body = markdown2html(source.read_text(encoding="utf-8"))
        back = f'<p class="lead"><a href="{HOME}">← All notebooks</a></p>'
        write_page_of(f"{back}\n{body}", report / PAGE)
