"""Hidden cases of the exercises of lab 09: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.collectives.exercise import judge_bandwidth, judge_ring, settings_of


def _messages(random: Random) -> list:
    kinds = ["all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all"]
    drawn = [(kind, random.randint(2, 16), random.randint(10**5, 10**9), random.uniform(1e-4, 1e-2)) for kind in kinds]
    return [*drawn, ("send/recv", 2, random.randint(10**5, 10**9), random.uniform(1e-4, 1e-2))]


def _rings(random: Random) -> list:
    return settings_of(sorted(random.sample(range(6, 12), 2)))


HIDDEN = {
    "bus_bandwidth": Cases(_messages, judge_bandwidth),
    "ring_step": Cases(_rings, lambda given, inputs: judge_ring(given, [*dict.fromkeys(one[2] for one in inputs)])),
}
