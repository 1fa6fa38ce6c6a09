"""Check what the student wrote, and name the bug in a pipeline that was tried beside the whole model."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.pipeline.bugs import SYMPTOMS
from labkit.labs.pipeline.exercise import SETTINGS, SPLITS, explained, judge_schedule, judge_split, key_of
from labkit.labs.pipeline.tables.trials import symptoms
from labkit.story import units

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
        return explained(outcome) if exercise == "one_f_one_b" else outcome
    given = dict(zip(map(key_of, inputs), outcome, strict=True))
    return (judge_schedule if exercise == "one_f_one_b" else judge_split)(given)


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
