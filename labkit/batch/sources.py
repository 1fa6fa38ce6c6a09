"""What the site's pages say, as Markdown and notebooks: an executed notebook, the first page, the claims."""

from __future__ import annotations

import base64
import functools
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

import nbformat
from markdown_it import MarkdownIt
from nbformat import NotebookNode
from PIL import Image, ImageFile

from labkit.claims import claims_of, labs_with_claims
from labkit.report.page import one_line
from labkit.report.record import FAILED, Outcome, duration
from labkit.story.claims import claims_text, tally

FIRST_PAGE = "first-page"  # tags the cells whose picture and sentence the first page shows of a notebook
WIDTH = 720  # of such a picture, in pixels: twice what it is shown at
BESIDE = {
    "card": "The node's card: its key figures beside physical limits and recorded runs",
    "trends": "Key figures by date",
    "claims": "What published reports claim, recomputed",
    "glossary": "Glossary",
}
NO_GPU = (
    "The key figures of this machine. A card compares them with recorded runs on GPUs of the same model: no GPU here"
)
INTRODUCTION = (
    "Each row is a claim of a published report: the figure that it prints, and the figure that this workbook "
    "recomputes from a formula, from other published figures, or from a recorded run. Reasons follow for claims that "
    "do not hold or cannot be decided."
)
_ALL_ITS_WIDTH = "---\nhtml_theme.sidebar_secondary.remove: true\n---\n"  # no contents beside the text
_PNG, _HTML, _MARKDOWN = "image/png", "text/html", "text/markdown"
_WIDGET = "application/vnd.jupyter.widget-view+json"
_WIDGET_NOTE = '<p class="soft">{}A control: open the notebook in JupyterLab to use it.</p>'
_ERROR_CELL = "papermill-error-cell-tag"
_NOTEBOOK_LINK = re.compile(r"\]\((\d\d_\w+)\.ipynb(#[^)]*)?\)")
_OWN_LINK = re.compile(r'href="(\w+)\.(?:ipynb|md)(#[^"]*)?"')


@dataclass(frozen=True)
class Shown:
    """What the first page shows of a notebook: question and verdict as Markdown, a PNG as base64, and it in words."""

    question: str = ""
    verdict: str = ""
    picture: str = ""
    words: str = ""


def shown_first(notebook: NotebookNode) -> Shown:
    """Return what the first page shows: of the tagged cells the picture and the sentence, else the first picture."""
    tagged = [cell for cell in notebook.cells if FIRST_PAGE in cell.metadata.get("tags", [])]
    picture = next((output for cell in [*tagged, *notebook.cells] for output in _outputs(cell, _PNG)), None)
    verdict = next((output["data"][_MARKDOWN] for cell in tagged for output in _outputs(cell, _MARKDOWN)), "")
    title = next((cell.source for cell in notebook.cells if cell.source.startswith("# ")), "")
    text = title.partition("\n")[2].strip()
    return Shown(
        _first_paragraph(text),
        _first_paragraph(verdict),
        picture["data"][_PNG] if picture else "",
        _words(picture) if picture else "",
    )


def notebook_page(notebook: NotebookNode, above: str, names: Collection[str]) -> str:
    """Return the source of a notebook's page: what a reader needs of the executed notebook, as JSON.

    above: HTML below the title. A link to a notebook that is not among `names` leads to the first page. What is over,
    bars of progress and papermill's notice, is left out, and a line stands where a control stood.
    """
    cells = notebook.cells
    if cells and _ERROR_CELL in cells[0].metadata.get("tags", []):
        cells = cells[1:]  # papermill's notice on top: the page has its own; where the cell failed there is another
    for cell, later in zip(cells, [*cells[1:], NotebookNode()], strict=True):
        cell.metadata = NotebookNode()
        if cell.cell_type == "markdown":
            text = _NOTEBOOK_LINK.sub(lambda link: link[0] if link[1] in names else "](index.md)", cell.source)
            cell.source = with_site_links(text, names)
        elif cell.cell_type == "code":
            cell.outputs = [shown for output in cell.outputs if (shown := _without_widget(output)) is not None]
            for output in _outputs(cell, _HTML):
                output["data"][_HTML] = with_site_links(output["data"][_HTML], names)
            if words := next(map(_words, _outputs(cell, _PNG)), ""):
                cell.metadata["mystnb"] = {"image": {"alt": f"{words} {_said(later)}".strip()}}
    if cells and cells[0].cell_type == "markdown":
        title, _, text = cells[0].source.partition("\n")
        cells[0].source = f"{title}\n\n{above}\n\n{text.strip()}"
    return _source_of(cells)


def stub(title: str, above: str) -> str:
    """Return the source of a page in place of one that cannot be made."""
    return _source_of([nbformat.v4.new_markdown_cell(f"# {title}\n\n{above}")])


def raw_page(title: str, body: str, style: str = "") -> str:
    """Return the source of a page whose body is HTML."""
    return f"{_ALL_ITS_WIDTH}# {title}\n\n{_block(f'<style>{style}</style>')}\n\n{_block(body)}\n"


def first_page(
    title: str,
    lines: Sequence[str],
    entries: Sequence[str],
    beside: Mapping[str, str],
    about: str,
    pages: Sequence[str],
) -> str:
    """Return the source of the first page: lines below its title, the lessons, the other pages, and HTML about it all.

    pages: file names of all other pages; `beside` says what those beside the lessons are.
    """
    names = [Path(name).stem for name in pages if name.endswith((".md", ".ipynb"))]
    links = "".join(f'<li><a href="{name}.html">{text}</a></li>' for name, text in beside.items() if name in names)
    listed = "\n".join(names)
    return f"""{_ALL_ITS_WIDTH}# {title}

<p class="lead">{"<br>".join(lines)}</p>

{_block(f'<div class="lessons">{"".join(entries)}</div>')}

<ul>{links}</ul>

{_block(f"<div>{about}</div>")}

```{{toctree}}
:hidden:

{listed}
```
"""


def lesson_entry(name: str, title: str, shown: Shown, state: str = "") -> str:
    """Return a lesson on the first page, as HTML."""
    link = f'<a href="{escape(name)}.html">'
    picture = f'<img src="{picture_file(name)}" alt="{escape(shown.words)}">' if shown.picture else ""
    return f"""<article class="lesson"><h2>{link}{escape(title)}</a></h2>
<div class="picture">{picture}</div>
<div class="question">{as_html(shown.question)}</div>
<div class="verdict">{as_html(shown.verdict)}</div>{state}</article>"""


def picture_file(name: str) -> str:
    """Return where the picture of a notebook on the first page stands."""
    return f"pictures/{name}.png"


@functools.cache
def thumbnail(picture: str) -> bytes:
    """Return a PNG (base64) as a PNG of at most WIDTH pixels and 64 colours; nothing of nothing."""
    if not picture:
        return b""
    parser = ImageFile.Parser()
    parser.feed(base64.b64decode(picture))
    whole = parser.close().convert("RGBA")
    small = Image.new("RGB", whole.size, "white")
    small.paste(whole, mask=whole.getchannel("A"))
    small.thumbnail((WIDTH, 2 * WIDTH), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.quantize(64).save(file, "PNG", optimize=True)
    return file.getvalue()


def ended_early(outcome: Outcome) -> str:
    """Return one line on a notebook that did not run to its end, as HTML: which one, and why."""
    why = escape(next(iter(outcome.why.splitlines()), ""))
    anchor = "#papermill-error-cell" if outcome.status == FAILED else ""
    link = f'<a href="{escape(outcome.name)}.html{anchor}">{escape(outcome.title)}</a>'
    return f"{_state(outcome)}: {link} {why}"


def state_of(outcome: Outcome, here: tuple[str, str]) -> str:
    """Return how a notebook went, as HTML: its state and time, what it was set to, and why it failed."""
    settings = [f"{name} = {value}" for name, value in outcome.parameters.items()]
    where = [] if (outcome.node, outcome.host) == here else [outcome.where()]
    said = " · ".join([duration(outcome.seconds), *settings, outcome.started.replace("T", " "), *where])
    why = f'<div class="why">{one_line(outcome.why)}</div>' if outcome.why else ""
    return f'<p class="state">{_state(outcome)} <span class="soft">{escape(said)}</span></p>{why}'


def _state(outcome: Outcome) -> str:
    return f'<b class="{escape(outcome.status)}">{escape(outcome.status)}</b>'


def above_the_page(outcome: Outcome) -> str:
    """Return what stands below a page's title, as HTML: where and when it ran, and why it failed."""
    said = f"{outcome.where()} · {outcome.started.replace('T', ' ')}"
    why = f'<div class="why"><a href="#papermill-error-cell">{escape(outcome.status)}</a> {one_line(outcome.why)}</div>'
    return f'<p class="soft">{one_line(said)}</p>{why if outcome.why else ""}'


def claims_page() -> str:
    """Return the source of the page of all labs' claims; a lab whose claims cannot be recomputed is named with why.

    A damaged recording in one lab thus costs neither the other labs' claims nor the run of the notebooks.
    """
    sections, tables = [], []
    for lab in labs_with_claims():
        try:
            tables.append(claims_of(lab))
            sections.append(f"## {lab}\n\n{claims_text(tables[-1]).data}")
        except Exception as error:
            why = one_line(f"not recomputed: {type(error).__name__}: {error}")
            sections.append(f'## {lab}\n\n<div class="why">{why}</div>')
    verdicts = [holds for table in tables for holds in table["holds"]]
    return "\n\n".join(["# What published reports claim", INTRODUCTION, f"{tally(verdicts)}.", *sections])


def as_html(markdown: str) -> str:
    """Return Markdown as HTML on one line, without links: it stands where its pages may not."""
    html = MarkdownIt("commonmark").enable("table").render(markdown)
    return " ".join(re.sub(r"</?a\b[^>]*>", "", html).split())


def with_site_links(html: str, names: Collection[str]) -> str:
    """Return HTML whose links to notebooks and the glossary lead to the site's pages, and to the first for others."""

    def there(link: re.Match[str]) -> str:
        return f'href="{link[1]}.html{link[2] or ""}"' if link[1] in {*names, "glossary"} else 'href="index.html"'

    return _OWN_LINK.sub(there, html)


def _block(html: str) -> str:
    """Return HTML without empty lines, as a block that Markdown leaves as it is."""
    return "\n".join(line for line in html.splitlines() if line.strip())


def _source_of(cells: list[NotebookNode]) -> str:
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}}))


def _first_paragraph(text: str) -> str:
    return text.partition("\n\n")[0]


def _outputs(cell: NotebookNode, kind: str) -> Iterator[NotebookNode]:
    yield from (output for output in cell.get("outputs", []) if kind in output.get("data", {}))


def _words(output: NotebookNode) -> str:
    """Return a chart in words, as labkit.charts.description has left it beside the picture."""
    return output.get("metadata", {}).get(_PNG, {}).get("alt", "")


def _said(cell: NotebookNode) -> str:
    """Return a verdict's first paragraph as text: what the chart above it shows."""
    said = next((output["data"][_MARKDOWN] for output in _outputs(cell, _MARKDOWN)), "")
    return unescape(re.sub(r"<[^>]+>", "", as_html(_first_paragraph(said))))


def _without_widget(output: NotebookNode) -> NotebookNode | None:
    """Return what a page shows of an output: a picture as a file, of a control its text and a line, no bar."""
    data = output.get("data", {})
    if _PNG in data:
        data.pop(_HTML, None)  # the same picture once more
    if _WIDGET not in data:
        return output
    text = data.get("text/plain", "")
    is_bar = not text or "%|" in text  # tqdm's; the widgets' own models are not there where a run was cut off
    asks = "" if re.match(r"\w+\(", text) else f"{escape(text)}<br>"  # IntSlider(…): it has no text of its own
    return None if is_bar else nbformat.v4.new_output("display_data", {_HTML: _WIDGET_NOTE.format(asks)})
