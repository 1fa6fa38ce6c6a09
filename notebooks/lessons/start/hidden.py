"""Hidden cases of the exercises of lab 00: the ones that a grader asks."""

from __future__ import annotations

from random import Random

from labkit.course.cases import Cases
from lessons.start.exercise import judge_cause, judge_place

_LOST = ("connection closed by peer", "connection reset", "lost the connection to another rank")


def _places(random: Random) -> list:
    return [(random.randint(0, 200), random.choice((1, 2, 4, 6, 8))) for _ in range(8)]


def _reports(random: Random) -> list:
    """Return reports with several errors, with one, and with none but lost connections."""
    drawn = []
    for errors in (2, 1, 0, 0, 1):
        ranks = random.randint(3, 8)
        times = random.sample(range(100, 900), ranks)
        failed = random.sample(range(ranks), max(1, errors))
        reports = []
        for rank in range(ranks):
            if rank in failed and errors:
                reports.append([rank, times[rank] / 100, random.choice(("ValueError: 3 chunks", "out of memory"))])
            elif rank not in failed:
                reports.append([rank, times[rank] / 100, random.choice(_LOST)])
        random.shuffle(reports)
        drawn.append((ranks, reports))
    return drawn


HIDDEN = {"place": Cases(_places, judge_place), "first_cause": Cases(_reports, judge_cause)}
