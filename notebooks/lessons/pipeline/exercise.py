"""Judge a student's 1F1B schedule and balanced split by their properties."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from labkit.course.exercises import CORE, STRETCH, Exercise, Exercises
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.story import units
from lessons.pipeline.bugs import SYMPTOMS
from lessons.pipeline.hints import HINTS
from lessons.pipeline.listings import CODES
from lessons.pipeline.tables.throughput import symptoms
from lessons.pipeline.theory.schedules import Step, every_split, one_f_one_b
from lessons.pipeline.theory.simulator import Times, bubble, in_flight, simulate, step_time

# Ranks, micro-batches. With fewer micro-batches than ranks, the first ranks run out of forwards while they warm up.
SETTINGS = ((4, 8), (4, 4), (2, 2), (2, 5), (8, 8), (4, 2), (4, 1), (3, 2), (8, 3), (2, 1), (1, 3))
# Layer times, stages. The two long ones and the last one are such that filling stages in turn, to the average or to
# any multiple of it, from either end, is not optimal in all of them; nor is an even split improved layer by layer.
SPLITS: tuple[tuple[list[float], int], ...] = (
    ([1] * 4, 2),
    ([1, 1, 1, 5], 2),
    ([3, 1, 1, 1, 1, 1], 3),
    ([2, 1, 4, 1, 1, 3, 1, 1], 4),
    ([6, 8, 2, 1.5, 4, 2, 8, 2.5], 5),
    ([4, 8, 0.5, 2.5, 1.5, 3, 1.5, 2, 1, 1, 8, 1.5], 4),
    ([5, 1, 1, 1], 3),
    ([2, 3, 1], 1),
    ([1, 4, 2], 3),
)
_FORGOTTEN = "it returns None: is a `return` missing?"


def calls_of(settings: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return rank, ranks and micro-batches of every call: one for each rank of each setting."""
    return [(rank, ranks, count) for ranks, count in settings for rank in range(ranks)]


def judge_schedule(schedules: Sequence[Any], settings: Sequence[tuple[int, int]] = SETTINGS) -> Verdict:
    """Return the verdict on schedules, lists of steps like "F0", "B0": one for each rank of each setting, in order."""
    faults: dict[str, str] = {}
    every = iter(schedules)
    for ranks, count in settings:
        where = f"with {_counted(ranks, 'rank')} and {_counted(count, 'micro-batch', 'es')}"
        results = [next(every) for _ in range(ranks)]
        fault = _unreadable(results)
        if not fault:
            order = [_steps(result, rank) for rank, result in enumerate(results)]
            fault = (
                _incomplete(order, ranks, count)
                or _stuck(order, ranks)
                or _kept(order, ranks)
                or _slow(order, ranks, count)
            )
        if fault:
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
    if faults:
        return Verdict("one_f_one_b", WRONG, faults)
    ranks, count = 4, 8
    share = bubble(simulate(one_f_one_b(ranks, count), _equal(ranks)))
    merits = (
        "every micro-batch goes forward once and backward once on every stage, and no rank waits forever",
        "rank r keeps at most ranks − r micro-batches",
        f"with {ranks} ranks and {count} micro-batches the bubble is {units.percent(share)}",
    )
    return Verdict("one_f_one_b", RIGHT, {}, merits)


def _explained(verdict: Verdict) -> Verdict:
    """Return the verdict on a schedule that raised, and say so where there were too few micro-batches to warm up."""
    call = re.search(r"[\[(](\d+), (\d+), (\d+)[\])]", verdict.faults.get("raised", ""))
    if not call:
        return verdict
    rank, ranks, count = map(int, call.groups())
    if count >= ranks - 1 - rank:
        return verdict
    sentence = (
        f"with {ranks} ranks rank {rank} takes {ranks - 1 - rank} forwards ahead, but here it has only "
        f"{_counted(count, 'micro-batch', 'es')}"
    )
    return replace(verdict, faults=verdict.faults | {"few_micro_batches": sentence})


def _counted(number: int, noun: str, ending: str = "s") -> str:
    return f"{number} {noun}{ending if number != 1 else ''}"


def _unreadable(results: list) -> tuple[str, str] | None:
    """Say what is not a list of steps such as "F0" and "B0"."""
    asked = 'give a list of names such as "F0" or "B3"'
    for rank, names in enumerate(results):
        if names is None:
            return "form", f"for rank {rank} {_FORGOTTEN}"
        if not isinstance(names, list):
            return "form", f"for rank {rank} it gives {names!r:.60}: {asked}"
        for place, name in enumerate(names):
            if not (isinstance(name, str) and re.fullmatch("[FB][0-9]{1,9}", name)):
                case = ", in lower case" if isinstance(name, str) and re.fullmatch("[fb][0-9]+", name) else ""
                if isinstance(name, str) and re.fullmatch("[FB]-[0-9]{1,9}", name):
                    case = ", and no micro-batch has a number below 0"
                return "form", f"for rank {rank} step {place} is {name!r:.60}{case}: {asked}"
    return None


def _steps(names: list[str], rank: int) -> list[Step]:
    """Return ["F0", "B0"] as steps of the rank's stage."""
    return [Step(name[0], rank, int(name[1:])) for name in names]


def _equal(ranks: int) -> Times:
    return Times([1.0] * ranks, [2.0] * ranks)


def _incomplete(order: list[list[Step]], ranks: int, count: int) -> tuple[str, str] | None:
    for rank, steps in enumerate(order):
        for kind, word in (("F", "forward"), ("B", "backward")):
            taken = [step.micro_batch for step in steps if step.kind == kind]
            if sorted(taken) == list(range(count)):
                continue
            why = ""
            if max(taken, default=0) >= count:
                why = f": there is no micro-batch {max(taken)}"
                if count < ranks - 1 - rank:
                    why += f", and {_counted(count, 'micro-batch', 'es')} cannot make {ranks - 1 - rank} forwards ahead"
            wanted = f"0 to {count - 1} once each" if count > 1 else "0 once"
            return "incomplete", f"rank {rank} goes {word} for micro-batches {sorted(taken)}, not for {wanted}{why}"
    return None


def _stuck(order: list[list[Step]], ranks: int) -> tuple[str, str] | None:
    try:
        simulate(order, _equal(ranks))
    except ValueError as error:
        return "deadlock", f"the pipeline stands still: {error}"
    return None


def _kept(order: list[list[Step]], ranks: int) -> tuple[str, str] | None:
    for rank, kept in enumerate(in_flight(simulate(order, _equal(ranks)))):
        if kept > ranks - rank:
            return "memory", (
                f"rank {rank} keeps {kept:.0f} micro-batches at the same time, and 1F1B keeps {ranks - rank}: when may "
                "this rank go backward for the first time?"
            )
    return None


def _slow(order: list[list[Step]], ranks: int, count: int) -> tuple[str, str] | None:
    taken, least = (step_time(simulate(steps, _equal(ranks))) for steps in (order, one_f_one_b(ranks, count)))
    if taken > least * 1.001:
        lasts = f"a step lasts as long as {taken:.0f} forwards (a backward counts as 2), and {least:.0f} are enough"
        return "slow", f"{lasts}: some rank waits longer than it needs to"
    return None


def judge_split(splits: Sequence[Any], cases: Sequence[tuple[list[float], int]] = SPLITS) -> Verdict:
    """Return the verdict on splits, each the layers of each stage: one for each of `cases`, in order."""
    faults: dict[str, str] = {}
    for sizes, (times, stages) in zip(splits, cases, strict=True):
        fault = _split_fault(sizes, times, stages)
        if fault:
            where = f"for layers that take {times} and {_counted(stages, 'stage')}"
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
    merits = ("every layer has a stage, and no other split has a faster slowest stage",)
    return Verdict("balanced_split", WRONG if faults else RIGHT, faults, () if faults else merits)


def _split_fault(sizes: Any, times: list[float], stages: int) -> tuple[str, str] | None:
    if sizes is None:
        return "form", _FORGOTTEN
    if not (isinstance(sizes, list) and all(type(size) is int for size in sizes)):
        return "form", f"it gives {sizes!r:.60}, not a list of whole numbers"
    if len(sizes) != stages:
        return "sum", f"it gives {sizes}, which is {_counted(len(sizes), 'stage')}, not {stages}"
    if sum(sizes) != len(times):
        return "sum", f"it gives {sizes}, which places {_counted(sum(sizes), 'layer')} of {len(times)}"
    if min(sizes) < 1:
        return "sum", f"it gives {sizes}: each stage needs one layer or more"
    best = min(every_split(len(times), stages), key=lambda cut: slowest(times, cut))
    if slowest(times, sizes) > slowest(times, best):
        return "balance", (
            f"it gives {sizes}, whose slowest stage takes {slowest(times, sizes):g}; "
            f"with {best} that is {slowest(times, best):g}"
        )
    return None


def slowest(times: list[float], sizes: list[int]) -> float:
    """Return the time of the slowest stage."""
    first, most = 0, 0.0
    for size in sizes:
        first, most = first + size, max(most, sum(times[first : first + size]))
    return most


_LEAST_CLOCK_SHARE = 0.95  # a clock that shows less of the step stopped too soon


def verdict_of(row: dict[Any, Any]) -> Verdict:
    """Return the verdict on one variant's symptoms: scale of the gradients, parameters lost, outputs, its own clock."""
    faults = {}
    ratio, count = row["gradient_ratio"], row["micro_batches"]
    if row["lost_parameters"]:
        faults["dropped_layer"] = (
            f"{row['lost_parameters']} parameters of the model are on no rank: the split leaves out a layer"
        )
    elif abs(ratio - count) < 0.05 * count and count > 1:
        faults["unscaled"] = (
            f"the gradients are {units.number(ratio)}× the right ones, as many as there are micro-batches"
        )
    elif max(_zero(row[e]) for e in ("output_error", "loss_error", "gradient_error")) > 1e-3:
        faults["wrong"] = "outputs, loss or gradients are not the whole model's"
    if row["clock_share"] < _LEAST_CLOCK_SHARE:
        faults["first_rank_clock"] = (
            f"its own clock shows as little as {units.percent(row['clock_share'])} of what the slowest rank took: the "
            "first rank is done before the others; wait for all of them"
        )
    merits = () if faults else ("outputs, loss and gradients are the whole model's, and no parameter is missing",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)


def _zero(value: float) -> float:
    return 0.0 if pd.isna(value) else value


check = Exercises(
    "pipeline",
    Exercise(
        "one_f_one_b",
        calls_of(SETTINGS),
        judge_schedule,
        on_failure=_explained,
        hints=HINTS["one_f_one_b"],
        grade=CORE,
    ),
    Exercise("balanced_split", SPLITS, judge_split, hints=HINTS["balanced_split"], grade=STRETCH),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
suspects, diagnose, show_suspects = line_up(
    "pipeline", SYMPTOMS, lambda run: symptoms(run).to_dict("records"), verdict_of, CODES
)
