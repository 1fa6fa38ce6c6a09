"""Suspects for "find the bug": who is who must not show in their order, and is said at the end by letter."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from string import ascii_uppercase
from typing import TYPE_CHECKING

from IPython.display import Markdown

from labkit.course.verdict import Verdict

if TYPE_CHECKING:
    from labkit.engine.run import Run


def lined_up(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in an order that says nothing about them, the same every time."""
    return tuple(sorted(names, key=lambda name: zlib.crc32(name.encode())))


def diagnosed(verdicts: Iterable[Verdict]) -> Markdown:
    """Say who is who and what is wrong, a letter a verdict, in the order of the suspects' table."""
    lines = []
    for letter, verdict in zip(ascii_uppercase, verdicts, strict=False):
        symptom = "; ".join(verdict.faults.values()) or "nothing is wrong with it"
        lines.append(f"- **{letter}** is `{verdict.exercise}`: {symptom}.")
    return Markdown("\n".join(lines))


def line_up(
    symptoms: Mapping[str, str], rows_of: Callable[..., Iterable[dict]], verdict_of: Callable[[dict], Verdict]
) -> tuple[Callable[[], tuple[str, ...]], Callable[..., Markdown]]:
    """Return a lab's `suspects()` and `diagnose(run)`.

    `symptoms` has what each broken variant shows, `rows_of(run)` the row of each variant in a Trial run, and
    `verdict_of(row)` the verdict on a variant, from its row alone.
    """

    def suspects() -> tuple[str, ...]:
        """Return the names of the broken variants, in an order that gives nothing away."""
        return lined_up(symptoms)

    def diagnose(run: Run) -> Markdown:
        """Name the fault of every variant of a Trial run, from its row alone."""
        return diagnosed(map(verdict_of, rows_of(run)))

    return suspects, diagnose
