"""Hidden cases of the exercises of lab 04: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from labkit.story import units
from lessons.ddp_fsdp.exercise import judge, judge_sent


def _senders(random: Random) -> list:
    strategies = ("ddp", "fsdp_full", "fsdp_grad")
    return [(strategy, random.randint(10**3, 10**9), random.randint(2, 16)) for strategy in strategies * 2] + [
        (random.choice(strategies), random.randint(10**3, 10**6), 1)
    ]


def _gradients(random: Random) -> list:
    return [
        ([random.randint(1, 40) * units.MIB // 4 for _ in range(random.randint(3, 12))], units.MIB, cap * units.MIB)
        for cap in random.sample(range(4, 30), 4)
    ]


HIDDEN = {"sent_bytes": Cases(_senders, judge_sent), "buckets": Cases(_gradients, judge)}
