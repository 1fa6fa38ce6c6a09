"""Writes the report's page of claims: what published reports say, recomputed, for all labs."""

from html import escape
from pathlib import Path

import pandas as pd

from labkit.claims import claims_of, labs_with_claims
from labkit.story.claims import HEADS, VERDICTS, cells_of

from .frame import write_page_of

CLASSES = {True: "ok", False: "failed", None: "interrupted"}
INTRODUCTION = (
    "Each row is a claim of a published report: the figure that it prints, and the figure that this workbook "
    "recomputes from a formula, from other published figures, or from a recorded run. Reasons follow for claims that "
    "do not hold or cannot be decided."
)


def write_claims(path: Path) -> None:
    """Write `path`, a page with the claims of all labs; a lab whose claims cannot be recomputed is named with why.

    A damaged recording in one lab thus costs neither the other labs' claims nor the run of the notebooks.
    """
    sections, tables = [], []
    for lab in labs_with_claims():
        try:
            tables.append(claims_of(lab))
            sections.append(_section(lab, tables[-1]))
        except Exception as error:
            why = f"not recomputed: {type(error).__name__}: {error}"
            sections.append(f'<h2>{escape(lab)}</h2><div class="why">{escape(why)}</div>')
    verdicts = [holds for table in tables for holds in table["holds"]]
    counts = (
        f"Of {len(verdicts)} claims {verdicts.count(True)} hold, {verdicts.count(False)} do not hold, "
        f"and {verdicts.count(None)} cannot be decided"
    )
    body = f"""<p class="lead"><a href="index.html">← All notebooks</a></p>
<h1>What published reports claim</h1>
<p class="lead">{escape(INTRODUCTION)}<br>{escape(counts)}.</p>
{"".join(sections)}"""
    write_page_of(body, path)


def _section(lab: str, table: pd.DataFrame) -> str:
    *names, verdict = HEADS
    heads = "".join(f"<th>{escape(head)}</th>" for head in names) + f'<th class="result">{escape(verdict)}</th>'
    records = table.to_dict("records")
    reasons = "".join(
        f"<li><em>{escape(row['says'])}</em> ({escape(row['report'])}): {escape(row['reason'])}</li>"
        for row in records
        if row["holds"] is not True
    )
    return f"""<h2>{escape(lab)}</h2>
<table><thead><tr>{heads}</tr></thead>
<tbody>{"".join(map(_row, records))}</tbody></table>
<ul>{reasons}</ul>
"""


def _row(row: dict) -> str:
    cells = "".join(f"<td>{escape(text)}</td>" for text in cells_of(row))
    return f'<tr>{cells}<td class="result {CLASSES[row["holds"]]}">{VERDICTS[row["holds"]]}</td></tr>\n'
