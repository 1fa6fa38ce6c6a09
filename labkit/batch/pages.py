"""Turns an executed notebook into one HTML page that shows everything and loads nothing from anywhere.

The pages link to each other and to the report's copy of the glossary.
"""

import logging
import re
from collections.abc import Collection
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbconvert
import nbformat
from jinja2 import DictLoader, pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters import markdown2html
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets.config import Config

from labkit.engine.files import replace_file
from labkit.report.page import COLOURS, write_page
from labkit.report.record import Outcome

GLOSSARY_SOURCE, GLOSSARY_PAGE, HOME = "glossary.md", "glossary.html", "index.html"
_NOTEBOOK = re.compile(r'href="(\d\d_\w+)\.ipynb(#[^"]*)?"')
_GLOSSARY = re.compile(rf'href="{re.escape(GLOSSARY_SOURCE)}(#[^"]*)?"')

# nbconvert's own page fetches require.js, MathJax, Mermaid and the widgets' code: without a network nothing of it
# shows, so those blocks are empty here and a widget is a line that says where it can be moved.
_TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_css -%}
{{ resources.include_css("static/theme-dark.css") | replace("<style", '<style media="(prefers-color-scheme: dark)"') }}
<style>{{ resources.page_css }}</style>
{%- endblock -%}
{%- block body_header -%}
<body class="jp-Notebook" data-jp-theme-light="true" data-jp-theme-name="JupyterLab Light">
{%- set ran = resources.outcome %}
<nav class="report"><a href="{{ resources.home }}">← All notebooks</a>
<span>{{ ran.name | e }} · {% if ran.host %}{{ ran.host | e }}: {% endif %}{{ ran.node | e }}
· {{ ran.started | replace("T", " ") | e }}</span></nav>
{%- if ran.why %}
<p class="report-why"><a href="#papermill-error-cell">{{ ran.status | e }}</a> {{ ran.why | e }}</p>
{%- endif %}
<main>
{%- endblock -%}
{%- block footer -%}</html>{%- endblock -%}
"""

_CSS = (
    f"{COLOURS}"
    """
body.jp-Notebook { max-width: 1100px; margin: 0 auto; padding: 0 24px 96px; background: var(--back);
  --jp-content-font-family: system-ui, -apple-system, "Segoe UI", sans-serif; --jp-content-font-size1: 15px;
  --jp-content-line-height: 1.6; }
nav.report { display: flex; justify-content: space-between; gap: 24px; padding: 14px 0; margin-bottom: 16px;
  border-bottom: 1px solid var(--line); color: var(--soft); font: 13px system-ui, sans-serif; }
nav.report a { color: var(--link); text-decoration: none; white-space: nowrap; }
p.report-why { margin: 0 0 24px; padding: 12px 16px; border-left: 4px solid var(--bad); background: var(--tint);
  color: var(--text); font: 14px/1.5 system-ui, sans-serif; white-space: pre-wrap; overflow-wrap: anywhere; }
.jp-RenderedHTMLCommon pre, .jp-RenderedHTMLCommon pre span, .highlight pre {
  font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; }
p.report-why a { color: var(--bad); font-weight: 600; text-decoration: none; }
p.report-widget { margin: 4px 10px; color: var(--soft); font: italic 13px system-ui, sans-serif; }
.jp-RenderedHTMLCommon .alert { border: 1px solid var(--line); border-left: 4px solid var(--link);
  background: var(--tint) !important; color: var(--text) !important; } /* over the cell's own colours */
.jp-RenderedImage img { max-width: 100%; height: auto; }
.jp-RenderedMarkdown table { margin-left: 0; }
.jp-OutputArea-output { overflow-x: auto; }
mtd[columnalign="right"] { text-align: right; } /* browsers know no columnalign */
mtd[columnalign="left"] { text-align: left; }
"""
)

_LOG = logging.getLogger("labkit.batch.nbconvert")
_LOG.setLevel(logging.ERROR)  # it warns of every chart that it lacks an alternative text

_WIDGET = "application/vnd.jupyter.widget-view+json"
_ERROR_MARKER = "papermill-error-cell-tag"
_WIDGET_NOTE = '<p class="report-widget">{}A control: open the notebook in JupyterLab to use it.</p>'
_SHOWN_TYPES = ["text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/latex", "text/plain"]
_STYLE_LOADS = re.compile(r"""(?:@import\s+(?!url)|url\()\s*['"]?([^'")\s;]+)""")
_LOADING = {"href": {"link"}, "data": {"object"}, "poster": {"video"}, "srcset": {"img", "source"}}


def write_notebook_page(
    executed: Path, page: Path, outcome: Outcome, folder: Path, names: Collection[str] = ()
) -> list[str]:
    """Write the page of an executed notebook and return the addresses that it would load (none, where all is well).

    Images that text cells name are embedded from `folder`, where the notebook stands. `names` are the notebooks of the
    report: links to them lead to their pages.
    """
    notebook = _static_notebook(nbformat.read(executed, as_version=4))
    resources = {
        "metadata": {"name": outcome.title, "path": str(folder)},
        "outcome": outcome,
        "home": HOME,
        "page_css": _CSS,
    }
    html, _ = _exporter().from_notebook_node(notebook, resources)
    html = with_report_links(html, names)
    page.parent.mkdir(parents=True, exist_ok=True)
    replace_file(page, html)
    return loaded_addresses(html)


def loaded_addresses(html: str) -> list[str]:
    """Return every address that a browser would load for this page: scripts, styles, images, frames.

    Embedded data and links that wait for a click are not among them.
    """
    finder = _Loads()
    finder.feed(html)
    return finder.addresses


class _Renderer(IPythonRenderer):
    """nbconvert's, with formulas as MathML, which a browser typesets without a script."""

    def inline_math(self, body: str) -> str:
        return self._typeset(body, "inline")

    def block_math(self, body: str) -> str:
        return self._typeset(body, "block")

    def _typeset(self, body: str, display: str) -> str:
        try:
            return convert(body, display=display)
        except Exception:  # its own have no common class; what is not LaTeX stays as it was written
            return f"<code>{self.escape_html(body)}</code>"


class _Exporter(HTMLExporter):
    """nbconvert's, which embeds images only where a text names one, and typesets formulas.

    To find images it parses every piece of HTML by itself, and so closes a <details> before the text that it folds
    away.
    """

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        renderer = _Renderer(
            escape=False,
            embed_images="![" in source or "<img" in source,
            path=context["resources"]["metadata"]["path"],
            attachments=context.get("cell", {}).get("attachments", {}),
        )
        return MarkdownWithMath(renderer=renderer).render(source)


def _exporter() -> HTMLExporter:
    # `pip install --target` puts the templates beside the package, where Jupyter's own search does not look.
    beside = Path(nbconvert.__file__).parents[1] / "share" / "jupyter" / "nbconvert" / "templates"
    config = Config({"NbConvertBase": {"display_data_priority": _SHOWN_TYPES}})
    return _Exporter(
        config=config,
        extra_loaders=[DictLoader({"page.html.j2": _TEMPLATE})],
        extra_template_basedirs=[str(beside)],
        extra_template_paths=[str(beside)],
        template_file="page.html.j2",
        log=_LOG,
    )


def _static_notebook(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what is over, progress bars and papermill's notice on top, and put a line where a control stood."""
    if notebook.cells and _ERROR_MARKER in notebook.cells[0].metadata.get("tags", []):
        del notebook.cells[0]  # papermill's notice on top: the page has its own
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [shown for output in cell.outputs if (shown := _without_widget(output)) is not None]
    return notebook


def _without_widget(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """Return what a page shows of an output: of a control its text and a line, of a bar of progress nothing."""
    data = output.get("data", {})
    if _WIDGET not in data:
        return output
    text = data.get("text/plain", "")
    is_bar = not text or "%|" in text  # tqdm's; the widgets' own models are not there where a run was cut off
    asks = "" if re.match(r"\w+\(", text) else f"{escape(text)}<br>"  # IntSlider(…): it has no text of its own
    return None if is_bar else nbformat.v4.new_output("display_data", {"text/html": _WIDGET_NOTE.format(asks)})


class _Loads(HTMLParser):
    """Collects the addresses that tags and styles of a page make a browser fetch."""

    def __init__(self):
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag, attributes):
        self._in_style = tag == "style"
        for name, value in attributes:
            if name == "style":
                self._styles(value or "")
            elif name == "src" or tag in _LOADING.get(name, ()):
                self._note(value or "")

    def handle_endtag(self, tag):
        self._in_style = self._in_style and tag != "style"

    def handle_data(self, data):
        if self._in_style:
            self._styles(data)

    def _styles(self, text: str) -> None:
        for address in _STYLE_LOADS.findall(text):
            self._note(address)

    def _note(self, address: str) -> None:
        if not address.startswith(("data:", "#")):
            self.addresses.append(address[:200])


def with_report_links(html: str, names: Collection[str]) -> str:
    """Return a page whose links lead to the report's own pages.

    `names` are the notebooks that have a page or will have one; a link to another notebook leads to the first page.
    """

    def to_page(link: re.Match) -> str:
        return f'href="{link[1]}.html{link[2] or ""}"' if link[1] in names else f'href="{HOME}"'

    return _GLOSSARY.sub(lambda link: f'href="{GLOSSARY_PAGE}{link[1] or ""}"', _NOTEBOOK.sub(to_page, html))


def write_glossary(folder: Path, report: Path) -> None:
    """Write the glossary of the notebooks' folder as a page of the report; nothing where there is no glossary."""
    source = folder / GLOSSARY_SOURCE
    if source.is_file():
        body = markdown2html(source.read_text(encoding="utf-8"))
        back = f'<p class="lead"><a href="{HOME}">← All notebooks</a></p>'
        write_page(f"{back}\n{body}", report / GLOSSARY_PAGE)
