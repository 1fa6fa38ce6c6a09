"""The exercises of lab 00: where a rank works, a first collective, and which rank failed first."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import why
from labkit.course.verdict import Verdict

_PLACES = ((0, 8), (7, 8), (8, 8), (13, 4), (5, 1), (30, 8), (3, 3), (21, 6))  # rank, GPUs per node
_LOST = ("connection closed by peer", "connection reset", "lost the connection to another rank")
# Ranks, and what some of them reported: rank, seconds, message.
_REPORTS = (
    (4, [[2, 10.31, _LOST[0]], [1, 10.3, "ValueError: 3 chunks"], [0, 10.32, _LOST[0]], [3, 10.33, _LOST[1]]]),
    (2, [[0, 5.2, _LOST[0]]]),
    (4, [[3, 7.5, _LOST[0]], [0, 7.4, _LOST[0]], [1, 7.6, _LOST[0]]]),
    (3, [[1, 2.1, _LOST[0]], [0, 2.0, "out of memory"], [2, 1.5, "out of memory"]]),
    (2, [[0, 2.9, _LOST[0]], [1, 3.0, "KeyError: 'step'"]]),
    (3, [[0, 4.1, _LOST[0]], [1, 4.0, "ValueError: no rows"]]),
    (3, [[2, 6.1, "lost the connection to rank 1"], [0, 6.2, "RuntimeError: connection to rank 2 timed out"]]),
    (3, [[0, 8.0, "NCCL error: connection refused"], [2, 8.1, "out of memory"], [1, 8.2, "out of memory"]]),
    (3, [[0, 7.53, "KeyError: 'step'"], [1, 7.4, _LOST[0]], [2, 7.51, "out of memory"]]),
    (2, [[1, 3.21, "KeyError: 'step'"], [0, 3.24, "out of memory"]]),
    (3, [[0, 10.2, "out of memory"], [1, 10.4, "out of memory"], [2, 9.8, "ValueError: 3 chunks"]]),
    (6, [[rank, 4 + rank / 10, _LOST[0]] for rank in (3, 0, 4, 2, 1)]),
)


def _places(random: Random) -> list:
    """Return the first, a middle and the last GPU of a node, on nodes of few GPUs and of many."""
    nodes = [(gpus, random.randint(4, 25)) for gpus in (1, 2, 3, 4, 5, 6, 8, 16)]
    return [(node * gpus + gpu, gpus) for gpus, node in nodes for gpu in sorted({0, gpus // 2, gpus - 1})]


def _reports(random: Random) -> list:
    """Return reports with several errors, with one, and with none but lost connections.

    Errors lie less than 0.1 s apart, in either order, or before and after 10 s. One is later than all lost connections.
    """
    second, nine, ten = random.randint(1, 9) + random.randint(0, 9) / 10, random.randint(91, 99) / 10, 10.2
    close = [round(second + after, 2) for after in (0.01, 0.03, 0.04)]
    errors = [[close[1], close[0]], [close[0], close[2]], [close[1], close[2], close[0]], [ten, nine], [nine, ten]]
    drawn = [_failure(random, random.randint(3, 8), times) for times in (*errors, [12.5])]
    drawn.append(_failure(random, random.randint(3, 8), [12.5], silent=0))
    return drawn + [_failure(random, 8, [], silent=random.randint(*ranks)) for ranks in ((0, 3), (4, 7))]


def _failure(random: Random, ranks: int, errors: list[float], silent: int | None = None) -> tuple[int, list]:
    """Return ranks, and the reports of all but `silent`: errors at these times, in this order; the others are lost."""
    talking = [rank for rank in range(ranks) if rank != silent]
    failed = sorted(random.sample(talking, len(errors)))
    lost = [[rank, random.randint(100, 1200) / 100, random.choice(_LOST)] for rank in talking if rank not in failed]
    random.shuffle(lost)
    places = sorted(random.sample(range(len(talking)), len(errors)))
    for place, rank, seconds in zip(places, failed, errors, strict=True):
        lost.insert(place, [rank, seconds, random.choice(("ValueError: 3 chunks", "out of memory"))])
    return ranks, lost


def _report_time(report: list) -> float:
    return report[1]


def _errors(reports: list[list]) -> list[list]:
    """Return the reports that are errors of the rank's own."""
    return [report for report in reports if "connection" not in report[2]]


def _silent_rank(ranks: int, reports: list[list]) -> int:
    return min({*range(ranks)} - {report[0] for report in reports})


def _cause(ranks: int, reports: list[list]) -> int:
    errors = _errors(reports)
    return min(errors, key=_report_time)[0] if errors else _silent_rank(ranks, reports)


_PLACE = compared(
    "place",
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
    result_form="a list of two whole numbers, the node and the GPU",
    rule="ranks fill node 0 first, one GPU after another, then node 1; both numbers count from 0",
    merit="every rank has a GPU of its own, and node after node is filled",
    inputs=_PLACES,
    grade=WARM_UP,
    cases=Cases(_places),
    hints=(
        "Write down the ranks of two nodes with 4 GPUs each. Which ranks share a node?",
        "The node is how many whole nodes are filled before this rank. The GPU is what is left.",
        "`rank // gpus_per_node` is the node. `%` gives what is left. Return both in a list.",
    ),
)
_FIRST_CAUSE = compared(
    "first_cause",
    _cause,
    (
        Mistake(
            "first_listed",
            lambda ranks, reports: reports[0][0],
            "reports arrive in any order: the first in the list need not be the first in time, nor an error",
            throughout=True,
        ),
        Mistake(
            "earliest",
            lambda ranks, reports: min(reports, key=_report_time)[0],
            "that rank only lost its connection to the one that failed",
        ),
        Mistake(
            "latest",
            lambda ranks, reports: max(_errors(reports), key=_report_time)[0],
            "the first failure is the error with the smallest time",
        ),
        Mistake(
            "silent_first",
            _silent_rank,
            "another rank reported an error of its own: blame a silent rank only if none did",
        ),
    ),
    result_form="the number of a rank",
    rule="take the earliest error that is no lost connection; if there is none, the rank that reported nothing",
    merit="ranks that only lost their connection are not blamed, and a rank that was killed is found by its silence",
    inputs=_REPORTS,
    grade=CORE,
    cases=Cases(_reports),
    hints=(
        "Look at the messages first. Which of them say only that another rank is gone?",
        "Two cases: some reports are errors of their own, or none are. In the first case, compare times. In the "
        "second case, look for the rank that is missing.",
        '`errors = [report for report in reports if "connection" not in report[2]]`. If `errors` has items, return '
        "the rank of `min(errors, key=lambda report: report[1])`. Otherwise return the rank in `range(ranks)` that "
        "is in no report.",
    ),
)

_RANKS = 4  # all cases have as many: the function may use the ranks that there are


def _means(random: Random) -> list[tuple[int, int, int]]:
    """Return ranks, the tensor's length and a seed."""
    return [(_RANKS, length, random.randint(1, 10**6)) for length in (1, 6, 1000)]


def judge_means(given: list, inputs: Sequence[Sequence[Any]], _due: Sequence = ()) -> Verdict:
    """Return the verdict on what each rank's tensor holds after `mean_over_ranks`, for each length."""
    for (ranks, length, _), told in zip(inputs, given, strict=True):
        mean = np.mean([each["own"] for each in told], axis=0)
        for rank, each in enumerate(told):
            if not np.allclose(each["tensor"], mean, rtol=1e-9, atol=1e-9):
                kind, why_so = _mean_fault(each, told, mean)
                where = f"with {ranks} ranks and {length} number{'' if length == 1 else 's'}, rank {rank}'s tensor"
                return Verdict.of_faults("mean_over_ranks", {kind: f"{where} {why_so}"})
    return Verdict.of_faults(
        "mean_over_ranks", {}, f"on {_RANKS} processes every rank's tensor holds the mean over all ranks"
    )


def _mean_fault(each: dict, told: list[dict], mean: np.ndarray) -> tuple[str, str]:
    """Return what kind of wrong result a rank's tensor holds, and the end of a sentence about it."""
    held, own, total = np.array(each["tensor"]), np.array(each["own"]), len(told) * mean
    if each["returned"] is not None and np.allclose(each["returned"], mean):
        return "returned", "does not hold the mean: that is returned in a new tensor, and should stand in this one"
    if np.allclose(held, own):
        return "unchanged", "is as it was: what the others hold has not come"
    if np.allclose(held, total):
        return "sum", "holds the sum over the ranks: a collective adds up, and does not divide"
    if np.allclose(held, own / len(told)):
        return "own", "holds its own numbers, divided: what the others hold has not come"
    if np.allclose(held, mean / len(told)):
        return "twice", "holds the mean, divided by the ranks once more"
    return "wrong", "holds other numbers than the mean"


check = Exercises(
    "start",
    _PLACE,
    Exercise(
        "mean_over_ranks",
        judge=judge_means,
        grade=CORE,
        cases=Cases(
            _means,
            driver="lessons.start.worker.tried",
            on_ranks=True,
            reference=("lessons.start.worker.mean.mean_over_ranks",),
            may_import=("lessons.start.worker.tried", "lessons.start.worker.mean"),
            start_s=40.0,  # torch
        ),
        hints=(
            "Which of the four collectives in the drawing leaves every rank with the sum of all?",
            "`dist.all_reduce(tensor)` replaces the tensor by the sum over all ranks. How many ranks are there?",
            "`dist.all_reduce(tensor)`, then `tensor /= dist.get_world_size()`, which divides in place.",
        ),
        solution=("lessons.start.worker.mean.mean_over_ranks",),
    ),
    _FIRST_CAUSE,
)
hint, solution, attempts = check.hint, check.solution, check.attempts


def why_first() -> HTML:
    """Ask why the first sum takes so much longer than the later ones."""
    return why(
        "All sums add up one number per rank. Why does the first one take so long on the GPUs?",
        (
            "It connects the ranks",
            "The library opens its connections in the first call, and keeps them for later ones.",
        ),
        ("The tensor has to be allocated", "No: the code above makes the tensor before the clock starts."),
        ("The GPU has to raise its clock", "A higher clock makes a small sum a little faster, not a thousand times."),
    )
