"""The student's exercises: where a rank works, and which rank failed first."""

from __future__ import annotations

from labkit.course.exercises import CORE, WARM_UP, Exercise, Exercises
from labkit.course.judging import Mistake, judge_of
from lessons.start.hints import HINTS

PLACES = ((0, 8), (7, 8), (8, 8), (13, 4), (5, 1), (30, 8), (3, 3))  # rank, GPUs per node
_LOST = "connection closed by peer"
# Ranks, and what some of them reported: rank, seconds, message.
REPORTS = (
    (4, [[2, 10.31, _LOST], [1, 10.3, "ValueError: 3 chunks"], [0, 10.32, _LOST], [3, 10.33, "connection reset"]]),
    (2, [[0, 5.2, _LOST]]),
    (4, [[3, 7.5, _LOST], [0, 7.4, _LOST], [1, 7.6, _LOST]]),
    (3, [[1, 2.1, _LOST], [0, 2.0, "out of memory"], [2, 1.5, "out of memory"]]),
    (2, [[0, 2.9, _LOST], [1, 3.0, "KeyError: 'step'"]]),
    (3, [[0, 4.1, _LOST], [1, 4.0, "ValueError: no rows"]]),
    (3, [[2, 6.1, "lost the connection to rank 1"], [0, 6.2, "RuntimeError: connection to rank 2 timed out"]]),
    (3, [[0, 8.0, "NCCL error: connection refused"], [2, 8.1, "out of memory"], [1, 8.2, "out of memory"]]),
)


def _cause(ranks: int, reports: list[list]) -> int:
    own = [report for report in reports if "connection" not in report[2]]
    if own:
        return min(own, key=lambda report: report[1])[0]
    return min({*range(ranks)} - {report[0] for report in reports})


judge_place = judge_of(
    "place",
    PLACES,
    lambda rank, gpus: [rank // gpus, rank % gpus],
    (
        Mistake("swapped", lambda rank, gpus: [rank % gpus, rank // gpus], "node and GPU are swapped"),
        Mistake("from_one", lambda rank, gpus: [rank // gpus + 1, rank % gpus + 1], "nodes and GPUs count from 0"),
        Mistake(
            "fraction", lambda rank, gpus: [rank / gpus, rank % gpus], "a node's number is whole: divide with `//`"
        ),
        Mistake("global_rank", lambda rank, gpus: [rank // gpus, rank], "GPUs are numbered from 0 on every node"),
        Mistake("one_node", lambda rank, gpus: [0, rank], "there are more ranks than one node has GPUs"),
    ),
    asked="a list of two whole numbers, the node and the GPU",
    rule="ranks fill node 0 first, one GPU after another, then node 1; both numbers count from 0",
    merit="every rank has a GPU of its own, and node after node is filled",
)
judge_cause = judge_of(
    "first_cause",
    REPORTS,
    _cause,
    (
        Mistake("first_listed", lambda ranks, reports: reports[0][0], "reports arrive in any order: compare the times"),
        Mistake(
            "earliest",
            lambda ranks, reports: min(reports, key=lambda report: report[1])[0],
            "that rank only lost its connection to the one that failed",
        ),
        Mistake(
            "latest",
            lambda ranks, reports: max(
                (one for one in reports if "connection" not in one[2]), key=lambda report: report[1]
            )[0],
            "the first failure is the error with the smallest time",
        ),
        Mistake(
            "silent_first",
            lambda ranks, reports: min({*range(ranks)} - {report[0] for report in reports}),
            "another rank reported an error of its own: blame a silent rank only if there is no such report",
        ),
    ),
    asked="the number of a rank",
    rule="take the earliest error that is no lost connection; if there is none, the rank that reported nothing",
    merit="ranks that only lost their connection are not blamed, and a rank that was killed is found by its silence",
)

check = Exercises(
    "start",
    Exercise("place", PLACES, judge_place, hints=HINTS["place"], grade=WARM_UP),
    Exercise("first_cause", REPORTS, judge_cause, hints=HINTS["first_cause"], grade=CORE),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
