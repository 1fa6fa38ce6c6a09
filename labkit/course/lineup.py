"""Suspects for "find the bug": who is who must not show in their order, and is said at the end by letter."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from string import ascii_uppercase

from IPython.display import Markdown

from labkit.course.verdict import Verdict


def lined_up(names: Iterable[str]) -> tuple[str, ...]:
    """Give the names in an order that says nothing about them, the same every time."""
    return tuple(sorted(names, key=lambda name: zlib.crc32(name.encode())))


def diagnosed(verdicts: Iterable[Verdict]) -> Markdown:
    """Say who is who and what is wrong, a letter a verdict, in the order of the suspects' table."""
    lines = []
    for letter, verdict in zip(ascii_uppercase, verdicts, strict=False):
        said = "; ".join(verdict.faults.values()) or "nothing is wrong with it"
        lines.append(f"- **{letter}** is `{verdict.exercise}`: {said}.")
    return Markdown("\n".join(lines))
