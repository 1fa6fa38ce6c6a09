"""Hidden cases of the exercises of lab 03: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.pipeline.exercise import calls_of, judge_schedule, judge_split


def _settings(random: Random) -> list:
    few = random.randint(3, 8)
    settings = {(random.randint(2, 8), random.randint(1, 12)) for _ in range(4)} | {(few, random.randint(1, few - 2))}
    return calls_of(sorted(settings))


def _layers(random: Random) -> list:
    times = [[random.randint(1, 12) / 2 for _ in range(random.randint(4, 9))] for _ in range(6)]
    return [(one, random.randint(2, 4)) for one in times]


HIDDEN = {
    "one_f_one_b": Cases(
        _settings, lambda given, inputs: judge_schedule(given, [*dict.fromkeys((one[1], one[2]) for one in inputs)])
    ),
    "balanced_split": Cases(_layers, judge_split),
}
