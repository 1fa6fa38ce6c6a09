"""Check what the student wrote, and name the bug in a sharded training that was tried beside one process."""

from __future__ import annotations

from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.sharding.bugs import SYMPTOMS
from labkit.labs.sharding.tables.training import symptoms
from labkit.ui import units

EXERCISES = ("held_bytes",)
SETTINGS = ((774_030_080, 2, 0), (774_030_080, 2, 1), (774_030_080, 2, 2), (774_030_080, 2, 3), (1_000_000, 8, 1),
            (1_000_000, 8, 2), (1_000_000, 8, 3))  # fmt: skip
SHARDED = (0, 8, 12, 16)  # bytes of 16 a parameter that a stage shards: none, states, + gradients, + parameters
WORDS = ("nothing", "the optimizer's states", "states and gradients", "states, gradients and parameters")


@judges_answers
def check(exercise: str, *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's answer to `exercise` ("held_bytes") and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(EXERCISES)}")
    outcome = called(f"sharding.{exercise}", [list(setting) for setting in SETTINGS], patience_s)
    return outcome if isinstance(outcome, Verdict) else judge(outcome)


def held_bytes(parameters: int, ranks: int, stage: int) -> float:
    """Give the bytes a rank holds of parameters, gradients and AdamW's states in float32 under a ZeRO stage."""
    return parameters * (16 - SHARDED[stage] + SHARDED[stage] / ranks)


def judge(given: list) -> Verdict:
    """Give the verdict on bytes a rank holds, a number for each setting (parameters, ranks, stage)."""
    faults: dict[str, str] = {}
    for (parameters, ranks, stage), value in zip(SETTINGS, given, strict=True):
        where = f"for {units.number(parameters / 1e6)} million parameters on {ranks} ranks, stage {stage}"
        right = held_bytes(parameters, ranks, stage)
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
            faults.setdefault("form", f"{where}, it gives {value!r}, not a number of bytes")
        elif stage and abs(value / held_bytes(parameters, ranks, stage - 1) - 1) < 0.01:
            faults.setdefault("stage", f"{where}, it is stage {stage - 1}'s: stage {stage} shards {WORDS[stage]}")
        elif value < 16 * parameters / ranks * 0.99:
            faults.setdefault("impossible", f"{where}, it is {units.size(value)}, less than 1/N of all there is")
        elif abs(value / right - 1) > 0.01:
            faults.setdefault("bytes", f"{where}, it is {units.size(value)}, not {units.size(right)}: "
                              "4 + 4 + 8 bytes a parameter")  # fmt: skip
    merits = ("every stage holds what it should, and none saves more than 1/N",)
    return Verdict("held_bytes", WRONG if faults else RIGHT, faults, () if faults else merits)


def suspects() -> tuple[str, ...]:
    """Give the names of the broken trainings, in an order that gives nothing away."""
    return lined_up(SYMPTOMS)


def diagnose(run) -> Markdown:
    """Name the fault of every variant of a Trial run, from its row alone."""
    return diagnosed(map(verdict_of, symptoms(run).to_dict("records")))


def verdict_of(row: dict) -> Verdict:
    """Give the verdict on one variant's symptoms."""
    faults, count = {}, row["micro_batches"]
    if abs(row["update_ratio"] - count) < 0.05 * count:
        faults["undivided"] = (
            f"the update is {units.number(row['update_ratio'])}× the right one, as many as micro-batches"
        )
    elif row["update_error"] > 1e-3:
        faults["wrong"] = "the weights do not change as in one process"
    if row["exchanges"] > 1.5:
        times = units.number(row["exchanges"], 2)
        faults["synced_every_time"] = f"a step exchanges {times} times the model's gradients; once would do"
    if row["largest_share"] > 0.99:
        faults["root_only"] = "one collective moves all parameters: the blocks were never wrapped on their own"
    merits = () if faults else ("updates are one process's, gradients go once, parameters come block by block",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)
