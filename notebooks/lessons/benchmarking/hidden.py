"""Hidden cases of the exercises of lab 06: steps of other lengths, and other timings to compare."""

from __future__ import annotations

import statistics
from random import Random

from labkit.course.cases import Cases
from lessons.benchmarking.exercise import judge_faster, judge_timed
from lessons.benchmarking.plan import SITUATIONS

_UNCLEAR = (0.6, 1.6)  # a difference of this many times its noise depends on how quartiles are defined


def _timings(random: Random) -> list:
    """Return steps before and after a change: slower, faster, and the same within their noise."""
    drawn: list[tuple] = []
    ratios = [0.5, 0.7, 1.001, 1.002, 1.4, 2.0]
    while ratios:
        before, after = (
            [round(length * random.uniform(0.97, 1.03), 5) for _ in range(random.randint(6, 10))]
            for length in (0.1, 0.1 * ratios[-1])
        )
        noise = sum((high - low) / 2 for low, _, high in (statistics.quantiles(one, n=4) for one in (before, after)))
        if not _UNCLEAR[0] < abs(statistics.median(before) - statistics.median(after)) / noise < _UNCLEAR[1]:
            drawn.append((before, after))
            ratios.pop()
    return drawn


def _steps(random: Random) -> list:
    return [(situation, random.uniform(0.5, 4)) for situation in SITUATIONS]


HIDDEN = {
    "faster": Cases(_timings, judge_faster),
    "timed": Cases(
        _steps,
        judge_timed,
        driver="lessons.benchmarking.worker.device",
        may_import=("lessons.benchmarking.worker.device", "lessons.benchmarking.theory.device"),
    ),
}
