"""Sentences: Markdown made of claims that were tested on the table before they are said."""

from __future__ import annotations

from collections.abc import Iterable

from IPython.display import Markdown

SMALL_NOTE = (
    "*This run is small: CPU processes stand in for GPUs and host buffers for GPU memory. It shows that the code is "
    "right and how the steps follow each other; its rates say nothing about GPUs or their links.*"
)


def say(*sentences: str | None, small: bool = False) -> Markdown:
    """Return the sentences as one paragraph, without those that are None; `small` adds what a small run means."""
    text = " ".join(sentence for sentence in sentences if sentence)
    return Markdown(f"{text}\n\n{SMALL_NOTE}" if small else text)


def text(said: Markdown) -> str:
    """Return the sentences as a string, to be put into others."""
    return said.data or ""


def beside(here: Markdown, recorded: Markdown) -> Markdown:
    """Return the sentences about this machine's run and those about the recorded run, each under its heading."""
    return Markdown(f"**Here.** {here.data}\n\n**Recorded.** {recorded.data}")


def listed(items: Iterable[object]) -> str:
    """Join as one says it: "a", "a and b", "a, b and c"; "none" of no items."""
    *most, last = [str(item) for item in items] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def resolved(a: float, b: float, spread_a: float, spread_b: float) -> bool:
    """Say whether two medians differ by more than their half-spreads together, so that one may be called faster."""
    return abs(a - b) > spread_a + spread_b
