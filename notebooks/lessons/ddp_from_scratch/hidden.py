"""Hidden cases of the exercises of lab 10: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases, named
from lessons.ddp_from_scratch.exercise import judge_count, judge_started


def _totals(random: Random) -> list:
    """Return totals whose best number of buckets is better than its neighbours beyond rounding."""
    drawn: list[tuple] = []
    while len(drawn) < 6:
        call_s, rate = random.choice((5e-6, 10e-6, 50e-6, 1e-3)), random.choice((10e9, 50e9, 100e9))
        root = random.uniform(1.2, 60)
        below = int(root)
        if abs(below * (below + 1) - root**2) > 0.05 * root:
            drawn.append((round(root**2 * call_s * rate), call_s, rate))
    return drawn


def _arrivals(random: Random) -> list:
    drawn = []
    for unused in (0, 0, 0, 1):
        weights = [*range(random.randint(5, 9))][::-1]
        cuts = sorted(random.sample(range(1, len(weights)), random.randint(1, 3)))
        buckets = [weights[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(weights)], strict=True)]
        drawn.append((buckets, random.sample(weights, len(weights) - unused)))
    return drawn


HIDDEN = {
    "best_count": Cases(_totals, judge_count),
    "started": Cases(_arrivals, lambda given, inputs: judge_started(given, named(inputs))),
}
