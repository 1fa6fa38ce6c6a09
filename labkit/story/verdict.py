"""What a section ends with: a verdict in one sentence, and at the end of the page what was found, rule by rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import pandas as pd
from IPython.display import Markdown

from labkit.gaps import gaps_of, without_number
from labkit.story.words import as_table

RuleInput = TypeVar("RuleInput")
MOST_NUMBERS = 3
# Of a run on CPUs: what a rule's row says of its speed, and what stands below a chart of its times.
NOT_COMPARED = "CPUs: not compared"
CPU_TIMES = "CPU processes share cores: times of this run say nothing about GPUs."
NOT_MEASURED = "not measured"
# Groups of three digits belong together, and so do the digits of 3.66; H200 and float32 are names.
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[ \u202f]\d{3}\b|[.,]\d+)*")


def numbers_in(text: str) -> list[str]:
    """Return the numbers that a reader sees in a sentence, without those inside a name such as H200."""
    return _NUMBER.findall(text)


def verdict(sentence: str, table: pd.DataFrame | None = None, *, summary: str = "All figures") -> Markdown:
    """Return a section's verdict: one sentence with at most three numbers; `table` holds more, folded below it.

    Raises ValueError where the sentence holds more numbers: they belong into the table.
    """
    if len(numbers := numbers_in(sentence)) > MOST_NUMBERS:
        raise ValueError(f"a verdict has at most {MOST_NUMBERS} numbers, this one {', '.join(numbers)}: {sentence}")
    if table is None:
        return Markdown(sentence)
    return Markdown(f"{sentence}\n\n{folded(summary, as_table(table))}")


def folded(summary: str, text: str) -> str:
    """Return Markdown that a reader opens by its summary."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def one_minute(rules: Mapping[str, Callable[[RuleInput], str | None]], **measured: RuleInput) -> Markdown:
    """Return a table of a lesson's rules, each with what it is worth by every measurement: here, recorded, published.

    `rules` gives for each rule how a measurement shows it, as a short text; None where it does not. A column whose head
    is two words is passed as `on_this_node`. Where recorded runs stand for those of this machine, `here` is left out.
    """
    heads = [name.replace("_", " ") for name in measured]
    rows = [[rule, *(_shown(show, run) for run in measured.values())] for rule, show in rules.items()]
    table = pd.DataFrame(rows, columns=["rule", *heads])
    if "here" in table and "recorded" in table and table["here"].equals(table["recorded"]):
        table = table.drop(columns="here")
    return Markdown(as_table(table))


def _shown(show: Callable[[RuleInput], str | None], run: RuleInput) -> str:
    """Return how the run shows a rule; where points that it needs are missing, that it was not measured."""
    try:
        shown = show(run) or NOT_MEASURED
    except Exception:
        if not gaps_of(run):
            raise
        return NOT_MEASURED
    return NOT_MEASURED if without_number(shown) and gaps_of(run) else shown
