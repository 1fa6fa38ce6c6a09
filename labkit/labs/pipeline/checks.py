"""Check what the student wrote, and name the bug in a pipeline that was tried beside the whole model."""

from __future__ import annotations

import json

import pandas as pd
from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.pipeline.bugs import SYMPTOMS
from labkit.labs.pipeline.tables.trials import symptoms
from labkit.labs.pipeline.theory.schedules import Step, one_f_one_b
from labkit.labs.pipeline.theory.simulator import Times, bubble, in_flight, simulate, step_time
from labkit.labs.pipeline.theory.splits import every_split
from labkit.ui import units

SETTINGS = ((2, 2), (2, 5), (4, 4), (4, 8), (8, 8))  # ranks, micro-batches
SPLITS = (
    ([1] * 4, 2),
    ([1, 1, 1, 5], 2),
    ([3, 1, 1, 1, 1, 1], 3),
    ([2, 1, 4, 1, 1, 3, 1, 1], 4),
)  # layer times, stages
EXERCISES = ("one_f_one_b", "balanced_split")
NOISE = 0.95  # a clock that shows less than this share of the step stopped too soon


@judges_answers
def check(exercise: str, *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's answer to `exercise` ("one_f_one_b", "balanced_split") and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(EXERCISES)}")
    if exercise == "one_f_one_b":
        inputs = [(rank, ranks, count) for ranks, count in SETTINGS for rank in range(ranks)]
    else:
        inputs = [*SPLITS]
    outcome = called(f"pipeline.{exercise}", inputs, patience_s)
    if isinstance(outcome, Verdict):
        return outcome
    given = dict(zip(map(_key, inputs), outcome, strict=True))
    return (judge_schedule if exercise == "one_f_one_b" else judge_split)(given)


def _key(arguments) -> str:
    return json.dumps(arguments)


def judge_schedule(given: dict[str, list[str]]) -> Verdict:
    """Give the verdict on schedules: for each rank's (rank, ranks, micro_batches), as JSON, steps like "F0", "B0"."""
    faults: dict[str, str] = {}
    for ranks, count in SETTINGS:
        where = f"with {ranks} ranks and {count} micro-batches"
        order = [_steps(given[_key((rank, ranks, count))], rank) for rank in range(ranks)]
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
        f"rank r keeps at most ranks − r micro-batches; its bubble with {ranks} and {count}: {units.percent(share)}",
    )
    return Verdict("one_f_one_b", RIGHT, {}, merits)


def _steps(names, rank: int) -> list[Step]:
    """Read ["F0", "B0"] as steps of the rank's stage; what cannot be read counts as no step."""
    names = names if isinstance(names, list) else []
    return [Step(name[0], rank, int(name[1:])) for name in map(str, names) if name[:1] in "FB" and name[1:].isdecimal()]


def _equal(ranks: int) -> Times:
    return Times([1.0] * ranks, [2.0] * ranks)


def _incomplete(order: list[list[Step]], ranks: int, count: int) -> tuple[str, str] | None:
    for rank, steps in enumerate(order):
        for kind, word in (("F", "forward"), ("B", "backward")):
            taken = sorted(step.micro_batch for step in steps if step.kind == kind)
            if taken != list(range(count)):
                return (
                    "incomplete",
                    f"rank {rank} goes {word} for micro-batches {taken}, not for 0 to {count - 1} once each",
                )
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
                f"rank {rank} keeps {kept:.0f} micro-batches at once; 1F1B needs {ranks - rank}: go backward "
                "as soon as there is something to go backward with"
            )
    return None


def _slow(order: list[list[Step]], ranks: int, count: int) -> tuple[str, str] | None:
    mine, own = (step_time(simulate(steps, _equal(ranks))) for steps in (order, one_f_one_b(ranks, count)))
    if mine > own * 1.001:
        return "slow", f"a step takes {mine:.0f} forwards, the workbook's own {own:.0f}: some rank waits that need not"
    return None


def judge_split(given: dict[str, list[int]]) -> Verdict:
    """Give the verdict on splits: for each (layer times, stages), as JSON, the layers of each stage."""
    faults: dict[str, str] = {}
    for times, stages in SPLITS:
        sizes, where = given[_key((times, stages))], f"for layers that take {times} and {stages} stages"
        if not (isinstance(sizes, list) and all(isinstance(size, int) for size in sizes)):
            faults.setdefault("form", f"{where}, it gives {sizes!r}, not a list of whole numbers")
        elif len(sizes) != stages or sum(sizes) != len(times) or min(sizes) < 1:
            faults.setdefault(
                "sum", f"{where}, {sizes} is no split of {len(times)} layers: each stage needs one or more"
            )
        elif slowest(times, sizes) > (least := min(slowest(times, cut) for cut in every_split(len(times), stages))):
            faults.setdefault(
                "balance", f"{where}, {sizes} has a stage of {slowest(times, sizes)}; {least} is possible"
            )
    merits = ("every split is whole, and no split has a faster slowest stage",)
    return Verdict("balanced_split", WRONG if faults else RIGHT, faults, () if faults else merits)


def slowest(times: list[float], sizes: list[int]) -> float:
    """Give the time of the slowest stage."""
    first, most = 0, 0.0
    for size in sizes:
        first, most = first + size, max(most, sum(times[first : first + size]))
    return most


def suspects() -> tuple[str, ...]:
    """Give the names of the broken pipelines, in an order that gives nothing away."""
    return lined_up(SYMPTOMS)


def diagnose(run) -> Markdown:
    """Name the fault of every variant of a Trial run, from its row alone."""
    return diagnosed(map(verdict_of, symptoms(run).to_dict("records")))


def verdict_of(row: dict) -> Verdict:
    """Give the verdict on one variant's symptoms: scale of the gradients, parameters lost, outputs, its own clock."""
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
    if row["clock_share"] < NOISE:
        faults["first_rank_clock"] = (
            f"its own clock shows as little as {units.percent(row['clock_share'])} of what the slowest rank took: the "
            "first rank is done before the others; wait for all of them"
        )
    merits = () if faults else ("outputs, loss and gradients are the whole model's, and no parameter is missing",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)


def _zero(value: float) -> float:
    return 0.0 if pd.isna(value) else value
