"""Hidden cases of the exercises of lab 12: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.accounting.exercise import judge_batch, judge_devices


def _sizes(random: Random) -> list:
    devices = (24, 40, 48, 80, 95, 141)
    return [(random.randint(60, 20_000), random.choice(devices)) for _ in range(6)] + [(random.uniform(0.2, 2.0), 24)]


def _batches(random: Random) -> list:
    drawn: list[tuple] = []
    while len(drawn) < 7:
        width, x, y = random.choice((16384, 28672, 53248)), random.choice((4, 8, 16, 32)), random.choice((2, 4, 8))
        axes = random.choice((1, 2)), random.choice((1, 2))
        flop_per_s, bytes_per_s = random.choice((4.6e14, 1e15)), random.choice((1.8e11, 4.5e11, 9e11))
        if (
            abs(width * bytes_per_s * axes[1] / (y * flop_per_s) - 1) > 0.05
        ):  # computing takes another time than sending
            drawn.append((width, x, y, *axes, flop_per_s, bytes_per_s))
    return drawn


HIDDEN = {"devices_needed": Cases(_sizes, judge_devices), "compute_bound_batch": Cases(_batches, judge_batch)}
