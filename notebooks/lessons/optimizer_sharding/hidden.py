"""Hidden cases of the exercises of lab 11: the ones that a grader asks."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from labkit.course.cases import Cases
from lessons.optimizer_sharding.exercise import judge_gathered, judge_shards


def _pieces(random: Random) -> list:
    """Return parameters cut into pieces, and these dealt out to ranks in no order."""
    drawn = []
    for _ in range(4):
        sizes, pieces = [random.randint(1, 6) for _ in range(random.randint(1, 4))], []
        for number, size in enumerate(sizes):
            values = [float(random.randint(-9, 9)) for _ in range(size)]
            cuts = sorted({0, size, *random.sample(range(size + 1), min(2, size))})
            pieces += [[number, begin, end, values[begin:end]] for begin, end in pairwise(cuts)]
        random.shuffle(pieces)
        ranks = random.randint(2, 4)
        drawn.append((sizes, [pieces[rank::ranks] for rank in range(ranks)]))
    return drawn


def _sizes(random: Random) -> list:
    return [
        ([random.randint(1, 5000) for _ in range(random.randint(2, 9))], ranks)
        for ranks in random.sample(range(2, 9), 4)
    ]


HIDDEN = {"gathered": Cases(_pieces, judge_gathered), "shards": Cases(_sizes, judge_shards)}
