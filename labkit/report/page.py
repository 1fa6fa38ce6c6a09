"""The frame of a page that stands alone: one style, light and dark, and nothing that is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from labkit.engine.files import replace_file

TITLE = "Multi-GPU training, measured"
STYLE_FILE = Path(__file__).with_name("style.css")
_STYLE = """
body { max-width: 1000px; margin: 0 auto; padding: 56px 24px 96px; background: var(--back); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 28px; font-weight: 650; letter-spacing: -0.01em; }
h2 { margin: 56px 0 12px; font-size: 17px; font-weight: 600; }
.lead { margin: 6px 0 32px; }
table { width: 100%; border-collapse: collapse; }
th { padding: 8px 12px 8px 0; border-bottom: 1px solid var(--line); color: var(--soft); font-size: 13px;
  font-weight: 500; text-align: left; }
td { padding: 12px 12px 12px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
"""


def page_of(body: str, style: str = "", title: str = TITLE) -> str:
    """Return a whole page around its body, in the report's style and what `style` adds to it."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE_FILE.read_text(encoding="utf-8")}{_STYLE}{style}</style></head>
<body><main>
{body}
</main></body></html>
"""


def write_page(body: str, path: Path, style: str = "", title: str = TITLE) -> None:
    """Write a page in one step: a reader never sees half of it, and a linked copy of the old one stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page_of(body, style, title))


def facts(heading: str, values: Mapping[str, Any]) -> str:
    """Return facts as HTML, a heading and a list; nothing where there are none."""
    rows = "".join(f"<dt>{one_line(str(name))}</dt><dd>{one_line(str(value))}</dd>" for name, value in values.items())
    return f'<h2>{heading}</h2>\n<dl class="facts">{rows}</dl>' if rows else ""


def one_line(text: str) -> str:
    """Return a text as HTML on one line: in Markdown an empty line would end the HTML."""
    return escape(text).replace("\n", "<br>")
