"""Hidden cases of the exercises of lab 14: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.beyond_the_node.exercise import judge_accumulation, judge_groups, judge_seconds


def _accumulations(random: Random) -> list:
    drawn = [(random.uniform(0.6, 0.97), random.uniform(0.02, 0.5), random.uniform(0.05, 1.0)) for _ in range(5)]
    return [*drawn, (0.75, 0.5, 0.5), (random.uniform(0.5, 0.9), 1.0, random.uniform(0.001, 0.01))]


def _meshes(random: Random) -> list:
    return [(random.randint(2, 6), random.randint(2, 8)) for _ in range(4)] + [(1, random.randint(2, 8)), (2, 3)]


def _calls(random: Random) -> list:
    return [
        (
            random.choice((4096, 10**6, 2**26, 10**9)),
            random.randint(2, 64),
            random.choice((2, 4, 8)),
            random.uniform(1e-6, 1e-5),
            random.uniform(20, 400),
            random.uniform(5e-6, 1e-4),
            random.uniform(0.1, 400),
        )
        for _ in range(6)
    ]


HIDDEN = {
    "accumulation_for": Cases(_accumulations, judge_accumulation),
    "mesh_groups": Cases(_meshes, judge_groups),
    "hierarchical_seconds": Cases(_calls, judge_seconds),
}
