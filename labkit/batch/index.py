"""Writes the report's first page: where and how the notebooks ran, one row each, with the way to their pages."""

from html import escape
from pathlib import Path

from .record import FAILED, OK, Outcome, Record

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #667080; --line: #e3e6ea; --back: #ffffff; --tint: #f6f7f9;
  --link: #1a5fb4; --ok: #1f7a4d; --bad: #b3261e; --held: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --soft: #9aa4b0; --line: #30363d; --back: #14171a;
  --tint: #1c2024; --link: #78aeed; --ok: #57c28a; --bad: #ff8a80; --held: #e2b340; } }
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
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.name { display: block; color: var(--soft); font-size: 13px; }
.why { margin: 8px 0 0; padding: 8px 12px; border-left: 3px solid var(--bad); background: var(--tint);
  font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 24px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
"""


def write_index(record: Record, path: Path) -> None:
    """Writes `path`, a page that needs nothing but itself and links to the notebooks' pages beside it."""
    outcomes = record.ordered()
    machine = record.machine
    beside = {"claims.html": "What published reports claim, recomputed", "glossary.html": "Glossary"}
    links = [f'<a href="{name}">{text}</a>' for name, text in beside.items() if path.with_name(name).exists()]
    link = f"<p>{' · '.join(links)}</p>" if links else ""
    body = f"""<h1>Multi-GPU training, measured</h1>
<p class="lead">{escape(machine.label)}<br>{escape(summary(outcomes))}</p>
{link}
<table><thead><tr><th>Notebook</th><th class="time">Time</th><th class="result">Result</th></tr></thead>
<tbody>
{"".join(_row(outcome, machine.label) for outcome in outcomes)}</tbody></table>
{_facts("This machine", machine.facts)}
{_facts("Versions", machine.versions)}"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(body), encoding="utf-8")


def summary(outcomes: list[Outcome]) -> str:
    """Return one line on all outcomes: how many there are, how many failed, and their time together."""
    count = len(outcomes)
    failed = sum(outcome.status != OK for outcome in outcomes)
    verdict = f"{failed} of them failed" if failed else "all ok"
    noun = "notebook" if count == 1 else "notebooks"
    return f"{count} {noun}, {verdict}, {duration(sum(outcome.seconds for outcome in outcomes))}"


def duration(seconds: float) -> str:
    """Return a time in words: 4.1 s, 41 s, 3 min 05 s, 2 h 05 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _row(outcome: Outcome, label: str) -> str:
    anchor = "#papermill-error-cell" if outcome.status == FAILED else ""
    why = f'<div class="why">{escape(outcome.why)}</div>' if outcome.why else ""
    return f"""<tr><td><a href="{escape(outcome.name)}.html{anchor}">{escape(outcome.title)}</a>
<span class="name">{escape(" · ".join(_circumstances(outcome, label)))}</span>{why}</td>
<td class="time">{duration(outcome.seconds)}</td>
<td class="result {escape(outcome.status)}">{escape(outcome.status)}</td></tr>
"""


def _circumstances(outcome: Outcome, label: str) -> list[str]:
    """Names the notebook, what it was set to and when it ran; and the node, where it is not the report's."""
    elsewhere = [outcome.node] if outcome.node != label else []
    settings = [f"{name} = {value}" for name, value in outcome.parameters.items()]
    return [outcome.name, *settings, outcome.started.replace("T", " "), *elsewhere]


def _facts(heading: str, facts: dict) -> str:
    rows = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    return f"<h2>{heading}</h2><dl>{rows}</dl>" if rows else ""


def page(body: str) -> str:
    """Return a whole page around its body, in the report's style."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Multi-GPU training, measured</title><style>{_STYLE}</style></head>
<body>
{body}
</body></html>
"""
