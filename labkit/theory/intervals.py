"""Intervals of time: what two groups of them share, and what a step's time went into.

Intervals are pairs (start, end) in any unit, in any order; they may overlap, touch, nest or be empty. What comes back
is merged: sorted, apart from one another, none empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

Intervals = list[tuple[float, float]]


def merged(intervals: Iterable[tuple[float, float]], gap: float = 0.0) -> Intervals:
    """Return the union of the intervals, gaps of at most `gap` closed."""
    union: Intervals = []
    for start, end in sorted((start, end) for start, end in intervals if end > start):
        if union and start - union[-1][1] <= gap:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def length(intervals: Iterable[tuple[float, float]]) -> float:
    """Return how much time at least one of the intervals covers."""
    return sum(end - start for start, end in merged(intervals))


def shared(a: Iterable[tuple[float, float]], b: Iterable[tuple[float, float]]) -> Intervals:
    """Return the time that both `a` and `b` cover."""
    a, b, both = merged(a), merged(b), []
    while a and b:
        both.append((max(a[0][0], b[0][0]), min(a[0][1], b[0][1])))
        first = a if a[0][1] <= b[0][1] else b
        first.pop(0)
    return merged(both)


def without(a: Iterable[tuple[float, float]], b: Iterable[tuple[float, float]]) -> Intervals:
    """Return the time that `a` covers and `b` does not."""
    edges = [float("-inf"), *(edge for interval in merged(b) for edge in interval), float("inf")]
    return shared(a, zip(edges[::2], edges[1::2], strict=True))


@dataclass(frozen=True)
class Account:
    """What a window's time went into: compute + exposed + idle is the whole window.

    `communication` is `hidden` (something computes meanwhile) or `exposed` (nothing does). `overlap` is the hidden
    share of communication, nan where there is none.
    """

    compute: float
    communication: float
    hidden: float
    exposed: float
    idle: float

    @property
    def overlap(self) -> float:
        return self.hidden / self.communication if self.communication else float("nan")


def accounted(
    compute: Iterable[tuple[float, float]], communication: Iterable[tuple[float, float]], start: float, end: float
) -> Account:
    """Account for the window from `start` to `end`; what lies outside it does not count."""
    window = [(start, end)]
    compute, communication = shared(compute, window), shared(communication, window)
    exposed = without(communication, compute)
    return Account(
        compute=length(compute),
        communication=length(communication),
        hidden=length(shared(communication, compute)),
        exposed=length(exposed),
        idle=length(without(window, compute + exposed)),
    )


def drawn(intervals: Iterable[tuple[float, float]], gap: float, most: int) -> Intervals:
    """Return at most `most` intervals to draw: gaps of at most `gap` are closed, then the shortest gaps."""
    union = merged(intervals, gap)
    gaps = sorted(after[0] - before[1] for before, after in pairwise(union))
    return merged(union, gaps[len(union) - most - 1]) if len(union) > most else union
