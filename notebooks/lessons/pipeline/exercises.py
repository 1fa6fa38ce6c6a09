"""The exercises of lab 03: 1F1B, judged in the simulator, a balanced split, and the bug in a pipeline.

Each exercise is one place: its judge, its cases and its hints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import HTML

from labkit.course.exercises import CORE, STRETCH, Cases, Exercise, Exercises
from labkit.course.exercises import Trial as Launches
from labkit.course.judging import not_the_form
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.story import units
from lessons.pipeline.plan import BY_HAND, YOURS, Schedules, Trial
from lessons.pipeline.tables.throughput import equality, symptoms
from lessons.pipeline.tables.timeline import predictions
from lessons.pipeline.theory.schedules import Step, every_split, one_f_one_b
from lessons.pipeline.theory.simulator import Times, bubble, in_flight, simulate, step_time

if TYPE_CHECKING:
    from labkit.engine.run import Run

# Ranks, micro-batches. With fewer micro-batches than ranks, the first ranks run out of forwards while they warm up.
SETTINGS = ((4, 8), (4, 4), (2, 2), (2, 5), (8, 8), (4, 2), (4, 1), (3, 2), (8, 3), (2, 1), (1, 3), (3, 12), (2, 34))
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
    ([1, 1, 1, 1, 1, 1, 1, 7, 6.5], 3),
    ([2, 1, 1.5, 3, 2, 1, 3, 2, 3, 2.5], 8),
)


def _calls(random: Random) -> list[tuple[int, int, int]]:
    """Return rank, ranks and micro-batches of every call, one for each rank of a setting."""
    few = random.randint(3, 8)
    drawn = {(random.randint(2, 8), random.randint(1, 12)) for _ in range(4)} | {(few, random.randint(1, few - 2))}
    return [(rank, *setting) for setting in dict.fromkeys((*SETTINGS, *sorted(drawn))) for rank in range(setting[0])]


def _layers(random: Random) -> list[tuple[list[float], int]]:
    times = [[random.randint(1, 12) / 2 for _ in range(random.randint(4, 9))] for _ in range(6)]
    return [*SPLITS, *((stages, random.randint(2, 4)) for stages in times)]


def judge_schedule(schedules: Sequence[Any], calls: Sequence[Sequence[int]]) -> Verdict:
    """Return the verdict on schedules, lists of steps like "F0", "B0": one for each of the calls, in order."""
    faults: dict[str, str] = {}
    every = iter(schedules)
    for ranks, count in dict.fromkeys((ranks, count) for _, ranks, count in calls):
        where = f"with {_count_text(ranks, 'rank')} and {_count_text(count, 'micro-batch', 'es')}"
        results = [next(every) for _ in range(ranks)]
        fault = _form_fault(results)
        if not fault:
            order = [_steps(result, rank) for rank, result in enumerate(results)]
            fault = (
                _completeness_fault(order, ranks, count)
                or _deadlock_fault(order, ranks)
                or _memory_fault(order, ranks)
                or _speed_fault(order, ranks, count)
            )
        if fault:
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
    if faults:
        return Verdict("one_f_one_b", WRONG, faults)
    ranks, count = 4, 8
    share = bubble(simulate(one_f_one_b(ranks, count), _equal_times(ranks)))
    merits = (
        "every micro-batch goes forward once and backward once on every stage, and no rank waits forever",
        "rank r keeps at most ranks − r micro-batches",
        f"with {ranks} ranks and {count} micro-batches the bubble is {units.percent(share)}",
    )
    return Verdict("one_f_one_b", RIGHT, {}, merits)


def _count_text(number: int, noun: str, ending: str = "s") -> str:
    return f"{number} {noun}{ending if number != 1 else ''}"


def _form_fault(results: list) -> tuple[str, str] | None:
    """Say what is not a list of steps such as "F0" and "B0"."""
    asked = 'a list of names such as "F0" or "B3"'
    for rank, names in enumerate(results):
        if not isinstance(names, list):
            return "form", f"for rank {rank} it gives {not_the_form(names, asked)}"
        for place, name in enumerate(names):
            if not (isinstance(name, str) and re.fullmatch("[FB][0-9]{1,9}", name)):
                case = ", in lower case" if isinstance(name, str) and re.fullmatch("[fb][0-9]+", name) else ""
                if isinstance(name, str) and re.fullmatch("[FB]-[0-9]{1,9}", name):
                    case = ", and no micro-batch has a number below 0"
                return "form", f"for rank {rank} step {place} is {name!r:.60}{case}: give {asked}"
    return None


def _steps(names: list[str], rank: int) -> list[Step]:
    """Return ["F0", "B0"] as steps of the rank's stage."""
    return [Step(name[0], rank, int(name[1:])) for name in names]


def _equal_times(ranks: int) -> Times:
    return Times([1.0] * ranks, [2.0] * ranks)


def _completeness_fault(order: list[list[Step]], ranks: int, count: int) -> tuple[str, str] | None:
    for rank, steps in enumerate(order):
        for kind, word in (("F", "forward"), ("B", "backward")):
            taken = [step.micro_batch for step in steps if step.kind == kind]
            if sorted(taken) == list(range(count)):
                continue
            why = ""
            if max(taken, default=0) >= count:
                why = f": there is no micro-batch {max(taken)}"
                if count < ranks - 1 - rank:
                    why += (
                        f", and {_count_text(count, 'micro-batch', 'es')} cannot make {ranks - 1 - rank} forwards ahead"
                    )
            wanted = f"0 to {count - 1} once each" if count > 1 else "0 once"
            return "incomplete", f"rank {rank} goes {word} for micro-batches {sorted(taken)}, not for {wanted}{why}"
    return None


def _deadlock_fault(order: list[list[Step]], ranks: int) -> tuple[str, str] | None:
    try:
        simulate(order, _equal_times(ranks))
    except ValueError as error:
        return "deadlock", f"the pipeline stands still: {error}: what do the other ranks run before that?"
    return None


def _memory_fault(order: list[list[Step]], ranks: int) -> tuple[str, str] | None:
    for rank, kept in enumerate(in_flight(simulate(order, _equal_times(ranks)))):
        if kept > ranks - rank:
            return "memory", (
                f"rank {rank} keeps {kept:.0f} micro-batches at the same time, and 1F1B keeps {ranks - rank}: when may "
                "this rank go backward for the first time?"
            )
    return None


def _speed_fault(order: list[list[Step]], ranks: int, count: int) -> tuple[str, str] | None:
    taken, least = (step_time(simulate(steps, _equal_times(ranks))) for steps in (order, one_f_one_b(ranks, count)))
    if taken > least * 1.001:
        lasts = f"a step lasts as long as {taken:.0f} forwards (a backward counts as 2), and {least:.0f} are enough"
        why = "how many forwards come first, and do all ranks take the micro-batches in the same order?"
        return "slow", f"{lasts}: some rank waits longer than it needs to: {why}"
    return None


def _launches(file: str, *, size: str = "small", gpus: int = 0) -> list[Trial | Schedules]:
    trial = Trial.sized(size, gpus=gpus, seeds=1, variants=(BY_HAND,), by_hand=(YOURS,), yours=file)
    return [trial, Schedules.sized(size, gpus=gpus, seeds=1, schedules=("1f1b",), yours=file)]


def judge_run(run: Run) -> Verdict:
    """Return the verdict on a schedule that the lesson's loop ran: the whole model's gradients, then its time."""
    if isinstance(run.plan, Trial):
        errors, faults = equality(run).iloc[0], {}
        if not errors["equal"]:
            faults["wrong_order"] = (
                f"run by the loop on {run.plan.workers_text}, gradients differ from the whole model's by up to "
                f"{units.percent(errors['gradient_error'])}: a rank must receive micro-batches in the order in which "
                "its neighbour sends them"
            )
        merit = f"run by the loop on {run.plan.workers_text}, it gives the loss and gradients of the whole model"
        return Verdict.of_faults("one_f_one_b", faults, merit)
    steps = predictions(run).set_index("schedule")
    yours, torchs = (units.seconds(steps.loc[name, "step_ms"] / 1e3) for name in (YOURS, "1f1b"))
    kept = " and ".join(f"{steps.loc[name, 'in_flight']:.0f}" for name in (YOURS, "1f1b"))
    merit = f"a step takes {yours} with your lists and {torchs} with torch's 1F1B; rank 0 keeps {kept} micro-batches"
    return Verdict.of_faults("one_f_one_b", {}, merit)


def judge_split(splits: Sequence[Any], cases: Sequence[Sequence[Any]]) -> Verdict:
    """Return the verdict on splits, each the layers of each stage: one for each of `cases`, in order."""
    faults: dict[str, str] = {}
    for sizes, (times, stages) in zip(splits, cases, strict=True):
        fault = _split_fault(sizes, times, stages)
        if fault:
            where = f"for layers that take {times} and {_count_text(stages, 'stage')}"
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
    merit = "every layer has a stage, and no other split has a faster slowest stage"
    return Verdict.of_faults("balanced_split", faults, merit)


def _split_fault(sizes: Any, times: list[float], stages: int) -> tuple[str, str] | None:
    if not (isinstance(sizes, list) and all(type(size) is int for size in sizes)):
        return "form", f"it gives {not_the_form(sizes, 'a list of whole numbers')}"
    if len(sizes) != stages:
        return "sum", f"it gives {sizes}, which is {_count_text(len(sizes), 'stage')}, not {stages}"
    if sum(sizes) != len(times):
        return "sum", f"it gives {sizes}, which places {_count_text(sum(sizes), 'layer')} of {len(times)}"
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
    elif max(_zero_if_missing(row[e]) for e in ("output_error", "loss_error", "gradient_error")) > 1e-3:
        faults["wrong"] = "outputs, loss or gradients are not the whole model's"
    if row["clock_share"] < _LEAST_CLOCK_SHARE:
        faults["first_rank_clock"] = (
            f"its own clock shows as little as {units.percent(row['clock_share'])} of the step: the first "
            "rank is done before the others; wait for all of them"
        )
    merit = "outputs, loss and gradients are the whole model's, and no parameter is missing"
    return Verdict.of_faults(row["variant"], faults, merit)


def _zero_if_missing(value: float) -> float:
    return 0.0 if pd.isna(value) else value


check = Exercises(
    "pipeline",
    Exercise(
        "one_f_one_b",
        judge=judge_schedule,
        trial=Launches(_launches, judge_run),
        grade=CORE,
        cases=Cases(_calls),
        hints=(
            "Look at the last rank first. It can go backward right after its first forward. How many forwards can the"
            " rank before it make until then?",
            "Rank r makes ranks − 1 − r forwards ahead, or fewer where there are not so many micro-batches. Then one "
            "forward and one backward in turn. Then the backwards that are left.",
            "`ahead = min(ranks - 1 - rank, micro_batches)`. First F0 to F(ahead − 1). Then, for each number from "
            '`ahead` on, `f"F{number}"` and `f"B{number - ahead}"`. The last `ahead` backwards end the list.',
        ),
    ),
    Exercise(
        "balanced_split",
        judge=judge_split,
        grade=STRETCH,
        cases=Cases(_layers),
        hints=(
            "An even number of layers per stage is not always best. Try layer times 1, 1, 1, 5 with two stages by "
            "hand.",
            "There are few ways to cut a short list. Try all of them, or build them up: the best split of the first k"
            " layers into s stages comes from a best split of fewer layers into s − 1 stages.",
            "`from itertools import combinations`. For each `cuts` in `combinations(range(1, len(times)), stages - "
            "1)`, the edges are `[0, *cuts, len(times)]`. Keep the edges whose largest `sum(times[a:b])` is smallest,"
            " and return their differences.",
        ),
    ),
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

_RIGHT = """
def cut(sizes):
    parts, first = [], 0
    for size in sizes:
        parts.append(range(first, first + size))
        first += size
    return parts

stage = Stage(layers=cut(sizes)[rank])
schedule = ScheduleGPipe(
    stage, micro_batches, loss, scale_grads=True)

def timed_step(batch):
    barrier()
    start = time.perf_counter()
    schedule.step(batch)
    synchronize()
    barrier()
    return time.perf_counter() - start
"""
# What each bug shows, and the check that names it; worker/trials.py has the bugs.
SYMPTOMS = {
    "unscaled": "the gradients of the micro-batches are added up and never divided by their number",
    "dropped_layer": "the split leaves out a layer, and what is left is faster",
    "first_rank_clock": "the clock stops when the first rank is done, while the others still work",
}
_CODES = with_bugs(
    _RIGHT,
    {
        "unscaled": [("scale_grads=True", "scale_grads=False")],
        "dropped_layer": [("    return parts", "    return [*parts[:-1], parts[-1][1:]]")],
        "first_rank_clock": [("    synchronize()\n    barrier()\n", "    synchronize()\n")],
    },
)
suspects, diagnose, show_suspects = line_up("pipeline", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_streams_gain() -> HTML:
    """Ask why a stream gains more from more GPUs than a fenced step does."""
    return why(
        "From 2 to 4 GPUs a stream becomes nearly twice as fast, and a fenced step does not.",
        (
            "A stream's bubble is filled by the next batch",
            "Only the first and the last batch of a stream leave stages idle. A fenced step has a bubble of its own.",
        ),
        (
            "A fence costs time",
            "A barrier takes well under a millisecond. What costs is what it forbids: to begin the next batch.",
        ),
        (
            "A fenced step sends more between GPUs",
            "Both send the same hidden states between the same stages.",
        ),
    )
