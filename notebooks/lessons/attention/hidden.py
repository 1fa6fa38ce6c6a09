"""Hidden cases of the exercises of lab 08: the ones that a grader asks."""

from __future__ import annotations

import math
from random import Random

from labkit.course.cases import Cases, named
from lessons.attention.exercise import judge_online, judge_tile


def _tiles(random: Random) -> list:
    sizes = (16, 32, 48, 64, 128)
    return [(random.randrange(6), random.randrange(8), random.choice(sizes), random.choice(sizes)) for _ in range(16)]


def _rows(random: Random) -> list:
    """Return ten tiles: the first of a row, others, and some in which keys or all keys are masked."""

    def tile(maximum: float, masked: int) -> tuple:
        keys, width = random.randint(max(2, masked), 5), random.randint(1, 4)
        scores = [random.uniform(-3, 3) for _ in range(keys)]
        for key in random.sample(range(keys), masked):
            scores[key] = -math.inf
        values = [[random.uniform(-2, 2) for _ in range(width)] for _ in range(keys)]
        if maximum == -math.inf:
            return maximum, 0.0, [0.0] * width, scores, values
        return maximum, random.uniform(1, 4), [random.uniform(-2, 2) for _ in range(width)], scores, values

    whole = [tile(-math.inf, 0), *(tile(random.uniform(-4, 4), 0) for _ in range(5))]
    part = [tile(random.uniform(-2, 2), random.choice((1, 2))) for _ in range(2)]
    score = [-math.inf] * 3
    nothing = (random.uniform(0, 2), 1.5, [0.25, -1.0], score, [[1.0, 2.0], [0.5, 0.0], [2.0, -1.0]])
    return [*whole, *(one for one in part if max(one[3]) > -math.inf), nothing]


HIDDEN = {
    "tile_work": Cases(_tiles, judge_tile),
    "online_softmax": Cases(_rows, lambda given, inputs: judge_online(given, named(inputs))),
}
