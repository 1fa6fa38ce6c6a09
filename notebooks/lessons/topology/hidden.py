"""Hidden cases of the exercises of lab 01: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.topology.exercise import CLASSES, judge_cpus, judge_hop


def _affinities(random: Random) -> list:
    drawn = []
    for count in (1, 1, 2, 3, 3):
        ends = sorted(random.sample(range(128), 2 * count))
        pairs = zip(ends[::2], ends[1::2], strict=True)
        drawn.append((",".join(f"{first}-{last}" if random.random() < 0.7 else str(first) for first, last in pairs),))
    return [*drawn, (str(random.randint(0, 127)),), ("N/A",)]


def _rings(random: Random) -> list:
    drawn = []
    for gpus in (3, 4, 4, 6, 8):
        links = [f"NV{count}" for count in random.sample(range(1, 19), 3)]
        classes = random.choice((links, (links[0], "PIX", "PHB", "SYS"), CLASSES))
        matrix = [["X"] * gpus for _ in range(gpus)]
        for row in range(gpus):
            for column in range(row):
                matrix[row][column] = matrix[column][row] = random.choice(classes)
        drawn.append((random.sample(range(gpus), random.randint(2, gpus)), matrix))
    return drawn


HIDDEN = {"cpus": Cases(_affinities, judge_cpus), "slowest_hop": Cases(_rings, judge_hop)}
