"""Check what the student wrote, and name the bug in a sharded optimizer that was set beside a whole one."""

from __future__ import annotations

from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.optimizer_sharding.bugs import SYMPTOMS
from labkit.labs.optimizer_sharding.exercise import SETTINGS, judge_shards
from labkit.labs.optimizer_sharding.tables.trials import faults, symptoms
from labkit.story import units

EXERCISES = ("shards",)


@judges_answers
def check(exercise: str, *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's answer to `exercise` ("shards") and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(EXERCISES)}")
    return judge_shards(called(f"optimizer_sharding.{exercise}", [list(setting) for setting in SETTINGS], patience_s))


def suspects() -> tuple[str, ...]:
    """Give the names of the broken optimizers, in an order that gives nothing away."""
    return lined_up(SYMPTOMS)


def diagnose(run) -> Markdown:
    """Name the fault of every variant of a Trial run, from its rows alone."""
    return diagnosed(map(verdict_of, symptoms(run).to_dict("records")))


def verdict_of(row: dict) -> Verdict:
    """Give the verdict on one variant's symptoms: a sentence a fault."""
    ranks, fullest = row["ranks"], units.percent(row["fullest"])
    sentences = {
        "shards_nothing": f"a rank holds {fullest} of the states, and the {ranks} ranks together "
        f"{units.number(row['together'])}× of them: nothing is sharded",
        "by_count": f"the fullest rank holds {fullest} of the states, not {units.percent(1 / ranks)}: parameters are "
        "counted, not their elements",
        "sends_nothing": f"replicas are {units.percent(row['drift'])} of a weight apart: a rank keeps what it updated",
        "stale_rate": f"the first step is right, and the last {units.percent(row['error'])} off: the rate fell, and "
        "the optimizers inside did not see it",
        "own_part": f"{units.percent(row['saved'])} of the numbers in its state_dict are right: the other ranks' "
        "part is not in it",
        "wrong": f"after one step a weight is {units.percent(row['first_error'])} off",
    }
    found = {kind: sentences[kind] for kind in faults(row)}
    merits = () if found else ("values, shares and state_dict are right",)
    return Verdict(row["variant"], WRONG if found else RIGHT, found, merits)
