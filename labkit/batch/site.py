"""Pages of Markdown and executed notebooks → a folder of HTML with contents and search, by Sphinx and MyST-NB.

It opens without a server and fetches nothing. Formulas become MathML, which browsers typeset without a script.
"""

from __future__ import annotations

import copy
import filecmp
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import nbformat
from docutils import nodes
from latex2mathml.converter import convert
from myst_nb.sphinx_ import Parser
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from labkit.report.page import STYLE_FILE, TITLE, one_line

THEME = Path(__file__).with_name("theme")
# Sphinx's own files that no reader opens, and the theme's maps for those who debug its scripts.
_LEFT_OUT = re.compile(r"\.buildinfo|\.map$|objects\.inv|/locales/")
_CONFIGURATION: dict[str, Any] = {
    "project": TITLE,
    "html_title": TITLE,
    "language": "en",
    "smartquotes": False,  # -- and " stay as they were written
    "extensions": ["myst_nb", __name__],
    "html_theme": "sphinx_book_theme",
    "html_theme_options": {
        "use_download_button": False,
        "home_page_in_toc": True,
        "show_toc_level": 2,
        "footer_content_items": "",
        "navbar_persistent": [],  # one field for searching is enough
    },
    "templates_path": [],  # of its own: the theme adds to it, and Sphinx then takes every page for out of date
    "html_static_path": [str(THEME), str(STYLE_FILE)],
    "html_css_files": [STYLE_FILE.name, "site.css"],
    "html_copy_source": False,
    "html_use_index": False,
    "html_math_renderer": "mathml",
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "nb_ipywidgets_js": {},  # a widget's script would come from elsewhere
    "nb_render_markdown_format": "myst",
    "myst_enable_extensions": ["dollarmath", "amsmath", "strikethrough"],
    # What JupyterLab does not know stays as it was written: {a}`role`, % comments, (targets)=, +++ blocks.
    "myst_disable_syntax": ["myst_role", "myst_line_comment", "myst_target", "myst_block_break"],
    "suppress_warnings": ["myst", "mystnb"],
}


class Site:
    """The pages in the folder `out`. What did not change since the last `write` is not made again, unless asked for."""

    def __init__(self, out: Path):
        self.out = out
        self._kept = tempfile.TemporaryDirectory(prefix="labkit-site-")
        self._sources, self._built = Path(self._kept.name, "sources"), Path(self._kept.name, "built")

    def write(self, pages: Mapping[str, str | bytes], *, every: bool = True, builder: str = "html") -> dict[str, str]:
        """Write the pages, texts by file name ("index.md", "00_start.ipynb"), and files that they show, as bytes.

        index.md names the others. every: also pages that did not change are made again: their contents name new ones.
        Returns by name the pages that could not be made, and why; each says so in its place.
        """
        self._sources.mkdir(exist_ok=True)
        for file in self._sources.iterdir():
            if file.name not in pages:
                file.unlink()
        for name, content in pages.items():
            if isinstance(content, bytes):
                self._built.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
                self._built.joinpath(name).write_bytes(content)
            elif (file := self._sources / name).exists() is False or file.read_text(encoding="utf-8") != content:
                file.write_text(content, encoding="utf-8")
        with patch_docutils(), docutils_namespace():
            doctrees = self._built.with_name(f"{builder}-doctrees")
            settings = copy.deepcopy(_CONFIGURATION)  # the theme changes its own
            application = Sphinx(
                self._sources, None, self._built, doctrees, builder, settings, status=None, warning=None
            )
            OnePageParser.unmade.clear()
            application.build(force_all=every)
        for new in self._built.rglob("*"):
            if new.is_file() and not _LEFT_OUT.search(new.as_posix()):
                replace_changed(new, self.out / new.relative_to(self._built))
        return dict(OnePageParser.unmade)


def replace_changed(new: Path, old: Path) -> None:
    """Put a file in another's place in one step, where they differ: no reader sees half of it, and no hard link it."""
    if old.exists() and filecmp.cmp(new, old, shallow=False):
        return
    old.parent.mkdir(parents=True, exist_ok=True)
    draft = old.with_name(f".{old.name}.part")
    try:
        shutil.copyfile(new, draft)
        draft.replace(old)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


class OnePageParser(Parser):
    """MyST-NB's parser, of which an error costs its own page alone; it keeps the page's name, and the error."""

    unmade: ClassVar[dict[str, str]] = {}

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse a page, or say in its place why it could not be made."""
        try:
            super().parse(inputstring, document)
        except Exception as error:  # a notebook can hold anything
            name, why = Path(document["source"]).stem, f"{type(error).__name__}: {error}"
            self.unmade[name] = why
            document.clear()
            cell = nbformat.v4.new_markdown_cell(f"# {name}\n\n<p>This page could not be made: {one_line(why)}</p>")
            super().parse(nbformat.writes(nbformat.v4.new_notebook(cells=[cell])), document)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(_mathml(node.astext(), "block"))
    raise nodes.SkipNode


def _mathml(formula: str, display: str) -> str:
    try:
        return convert(formula, display=display)
    except Exception:  # its own have no common class; what is not LaTeX stays as it was written
        return f"<code>{escape(formula)}</code>"


def setup(application: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the parser and of the formulas."""
    application.add_source_parser(OnePageParser, override=True)
    application.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": False}
