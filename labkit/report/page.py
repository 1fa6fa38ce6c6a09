"""The frame of the report's pages: one style, light and dark, and nothing that is fetched from anywhere."""

from __future__ import annotations

from pathlib import Path

from labkit.engine.files import replace_file

TITLE = "Multi-GPU training, measured"
COLOURS = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #667080; --line: #e3e6ea; --back: #ffffff; --tint: #f6f7f9;
  --link: #1a5fb4; --ok: #1f7a4d; --bad: #b3261e; --held: #9a6700; --bar: #7aa7d6; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --soft: #9aa4b0; --line: #30363d; --back: #14171a;
  --tint: #1c2024; --link: #78aeed; --ok: #57c28a; --bad: #ff8a80; --held: #e2b340; --bar: #3c6ea6; } }
"""
_STYLE = (
    f"{COLOURS}"
    """
body { max-width: 1000px; margin: 0 auto; padding: 56px 24px 96px; background: var(--back); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 28px; font-weight: 650; letter-spacing: -0.01em; }
h2 { margin: 56px 0 12px; font-size: 17px; font-weight: 600; }
.lead { margin: 6px 0 32px; color: var(--soft); }
table { width: 100%; border-collapse: collapse; }
th { padding: 8px 12px 8px 0; border-bottom: 1px solid var(--line); color: var(--soft); font-size: 13px;
  font-weight: 500; text-align: left; }
td { padding: 12px 12px 12px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.time { width: 90px; text-align: right; white-space: nowrap; }
.result { width: 110px; padding-left: 24px; white-space: nowrap; }
td.result { font-weight: 600; }
.ok { color: var(--ok); } .failed { color: var(--bad); } .interrupted { color: var(--held); }
.soft { color: var(--soft); }
p.problem { border-left: 3px solid var(--held); padding: 6px 12px; background: var(--tint); }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.name { display: block; color: var(--soft); font-size: 13px; }
.why { margin: 8px 0 0; padding: 8px 12px; border-left: 3px solid var(--bad); background: var(--tint);
  font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 24px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
"""
)


def page_of(body: str, style: str = "") -> str:
    """Return a whole page around its body, in the report's style and what `style` adds to it."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title><style>{_STYLE}{style}</style></head>
<body>
{body}
</body></html>
"""


def write_page(body: str, path: Path, style: str = "") -> None:
    """Write a page in one step: a reader never sees half of it, and a linked copy of the old one stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page_of(body, style))
