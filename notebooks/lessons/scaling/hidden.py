"""Hidden cases of the exercises of lab 13: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.scaling.exercise import judge_rates, judge_shard, shards_of


def _sizes(random: Random) -> list:
    return shards_of(
        [(random.randint(12, 60), random.randint(2, 6), drop) for drop in (False, True)]
        + [(2, random.randint(3, 5), False)]
    )


def _schedules(random: Random) -> list:
    drawn = []
    for _ in range(5):
        steps, base = random.randint(5, 60), random.choice((64, 128, 256))
        drawn.append(
            (steps, random.randint(0, steps - 1), base * random.choice((1, 2, 4, 8)), base, random.choice((0.05, 0.1)))
        )
    return drawn


HIDDEN = {"shard": Cases(_sizes, judge_shard), "rates": Cases(_schedules, judge_rates)}
