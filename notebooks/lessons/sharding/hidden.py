"""Hidden cases of the exercises of lab 05: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.sharding.exercise import held_bytes, judge, judge_stage


def _settings(random: Random) -> list:
    models = [(random.randint(10**6, 10**9), random.randint(2, 16)) for _ in range(3)]
    return [(parameters, ranks, stage) for parameters, ranks in models for stage in range(4)]


def _clusters(random: Random) -> list:
    """Return clusters in which every stage is the least that fits, and one in which none does."""
    drawn = []
    for stage in range(4):
        parameters, ranks, kept = random.randint(1, 9) * 10**9, random.randint(2, 16), random.randint(1, 20) * 10**9
        drawn.append((parameters, ranks, int(1.001 * held_bytes(parameters, ranks, stage)) + kept, kept))
    parameters, ranks = random.randint(1, 9) * 10**9, random.randint(2, 16)
    drawn.append((parameters, ranks, int(0.9 * held_bytes(parameters, ranks, 3)), 0))
    random.shuffle(drawn)
    return drawn


HIDDEN = {"held_bytes": Cases(_settings, judge), "smallest_stage": Cases(_clusters, judge_stage)}
