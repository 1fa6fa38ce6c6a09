"""Check what the student wrote, and name the bug in a training that was tried beside one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labkit.course.exercise import written
from labkit.course.exercises import CORE, WARM_UP, Exercise, Exercises
from labkit.course.judging import Mistake, judge_of
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.story import units
from lessons.ddp_fsdp.bugs import SYMPTOMS
from lessons.ddp_fsdp.hints import HINTS
from lessons.ddp_fsdp.listings import CODES
from lessons.ddp_fsdp.tables import symptoms

SETTINGS = (
    ([units.MIB] * 4, units.MIB, 2 * units.MIB),
    ([5, 5, 5], 100, 100),
    ([30 * units.MIB, units.MIB, units.MIB, 2 * units.MIB, 24 * units.MIB, 1], units.MIB, 25 * units.MIB),
    ([89 * units.MIB, *[2 * units.MIB, 1024] * 20, 3 * units.MIB], units.MIB, 25 * units.MIB),
)  # bytes of each gradient in the order of the parameters, the first bucket's cap, every other's


def judge(given: list, settings: Sequence[tuple[list[int], int, int]] = SETTINGS) -> Verdict:
    """Return the verdict on buckets: for each setting a list of lists of parameter numbers."""
    faults: dict[str, str] = {}
    for (sizes, first, cap), filled in zip(settings, given, strict=True):
        fault = _form(filled) or _missing(filled, sizes) or _order(filled) or _caps(filled, sizes, first, cap)
        if fault:
            faults.setdefault(fault[0], f"for {written('buckets', [sizes, first, cap])}, {fault[1]}")
    merits = ("every gradient is in one bucket, the last first, and a bucket is closed when it holds its cap",)
    return Verdict("buckets", WRONG if faults else RIGHT, faults, () if faults else merits)


def _form(filled: Any) -> tuple[str, str] | None:
    lists = isinstance(filled, list) and all(isinstance(one, list) for one in filled)
    if not lists or not all(type(number) is int for one in filled for number in one):
        why = ": is a `return` missing?" if filled is None else ""
        return "form", f"it gives {filled!r:.60}, not a list of lists of whole numbers{why}"
    return None


def _missing(filled: list[list[int]], sizes: list[int]) -> tuple[str, str] | None:
    taken = sorted(number for one in filled for number in one)
    if taken != list(range(len(sizes))):
        return (
            "missing",
            f"the buckets hold {_brief(taken)}; they should hold each number from 0 to {len(sizes) - 1} once",
        )
    return ("empty", "one of the buckets is empty: there is nothing to send in it") if not all(filled) else None


def _brief(numbers: list[int]) -> str:
    return f"{numbers[:8]}{'…' if len(numbers) > 8 else ''}" if numbers else "no number"


def _order(filled: list[list[int]]) -> tuple[str, str] | None:
    taken = [number for one in filled for number in one]
    if taken != sorted(taken, reverse=True):
        return "order", f"the numbers begin with {taken[:4]}; backward makes the gradient of the last parameter first"
    return None


def _caps(filled: list[list[int]], sizes: list[int], first: int, cap: int) -> tuple[str, str] | None:
    for number, one in enumerate(filled):
        room, held = cap if number else first, [sizes[i] for i in one]
        if sum(held[:-1]) >= room:
            return (
                "late",
                f"bucket {number} held {units.size(sum(held[:-1]))}, at least its cap, and still got one more gradient",
            )
        if sum(held) < room and number < len(filled) - 1:
            return (
                "early",
                f"bucket {number} is closed when it holds {units.size(sum(held))}; its cap is {units.size(room)}",
            )
    return None


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one variant's symptoms."""
    faults, ranks = {}, row["ranks"]
    if row["raised"]:
        faults["unused_parameter"] = f'it raises "{row["raised"]}": some parameter never got a gradient to send'
    elif row["distinct"] < 1:
        faults["no_sampler"] = (
            f"only {units.percent(row['distinct'])} of a batch's samples differ: every rank draws the same ones"
        )
    elif abs(row["update_ratio"] - ranks) < 0.05 * ranks:
        faults["summed"] = f"the first update is {units.number(row['update_ratio'])}× the right one, as many as ranks"
    elif row["repeated"] > 0.9:
        faults["no_set_epoch"] = "the second epoch begins with the first one's samples, in the same order"
    elif row["update_error"] > 1e-3:
        faults["wrong"] = "the weights do not change as in one process"
    merits = () if faults else ("samples, losses and updates are one process's",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)


SENDERS = (
    ("ddp", 109_482_240, 4),
    ("fsdp_full", 109_482_240, 4),
    ("fsdp_grad", 109_482_240, 4),
    ("ddp", 1000, 2),
    ("fsdp_full", 1000, 8),
    ("fsdp_grad", 3000, 3),
    ("ddp", 5000, 1),
    ("fsdp_full", 5000, 1),
)  # strategy, parameters, ranks
_PASSES = {"ddp": 2, "fsdp_full": 3, "fsdp_grad": 2}  # a reduce-scatter or an all-gather of everything is one


def _sent(strategy: str, parameters: int, ranks: int, passes: dict[str, int] = _PASSES) -> float:
    return passes[strategy] * (ranks - 1) / ranks * 4 * parameters


judge_sent = judge_of(
    "sent_bytes",
    SENDERS,
    _sent,
    (
        Mistake(
            "whole",
            lambda s, p, n: _PASSES[s] * 4 * p,
            "that is all the bytes; in a ring each rank keeps one of N parts and does not send it",
        ),
        Mistake(
            "numbers",
            lambda s, p, n: _sent(s, p, n) / 4,
            "that counts numbers, not bytes: in float32 each number takes 4",
        ),
        Mistake("together", lambda s, p, n: _sent(s, p, n) * n, "that is what all ranks send together"),
        Mistake(
            "one_pass",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"ddp": 1}),
            "an all-reduce is a reduce-scatter and then an all-gather: two passes",
        ),
        Mistake(
            "gathered_once",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"fsdp_full": 2}),
            "full sharding gathers the parameters again in backward: two all-gathers and a reduce-scatter",
        ),
        Mistake(
            "no_gather",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"fsdp_grad": 1}),
            "each rank updates its part alone, so the parameters have to be gathered in the next forward",
        ),
        Mistake(
            "gathered_twice",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"fsdp_grad": 3}),
            "gradient-only sharding keeps the gathered parameters for backward: one all-gather",
        ),
    ),
    asked="a number of bytes",
    rule="count the all-gathers and reduce-scatters of this strategy, and the bytes that one rank sends in each",
    merit="DDP and gradient-only sharding send the same, and full sharding half as much again",
)

check = Exercises(
    "ddp_fsdp",
    Exercise("sent_bytes", SENDERS, judge_sent, hints=HINTS["sent_bytes"], grade=WARM_UP),
    Exercise("buckets", SETTINGS, judge, hints=HINTS["buckets"], grade=CORE),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
suspects, diagnose, show_suspects = line_up(
    "ddp_fsdp", SYMPTOMS, lambda run: symptoms(run).to_dict("records"), verdict_of, CODES
)
