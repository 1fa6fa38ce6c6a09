"""Check the student's ring, and name what is wrong with a benchmark of an all-reduce that looks right."""

from __future__ import annotations

from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.collectives.bugs import SYMPTOMS
from labkit.labs.collectives.exercise import SETTINGS, judge_ring
from labkit.story import units

EXERCISES = ("ring_step",)
LATE = 0.1  # of what the clock showed
SAME = 0.1  # two bandwidths that are one


@judges_answers
def check(exercise: str, *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's answer to `exercise` ("ring_step") and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(EXERCISES)}")
    return judge_ring(called(f"collectives.{exercise}", [list(setting) for setting in SETTINGS], patience_s))


def suspects() -> tuple[str, ...]:
    """Give the names of the broken benchmarks, in an order that gives nothing away."""
    return lined_up(SYMPTOMS)


def diagnose(run) -> Markdown:
    """Name the fault of every variant of a Trial run, from its row alone."""
    return diagnosed(map(verdict_of, run.rows.to_dict("records")))


def verdict_of(row: dict) -> Verdict:
    """Give the verdict on one variant's row: a sentence a fault, values before times."""
    faults = _values(row) or _times(row)
    factor = row["claimed_gb_per_s"] / row["bus_gb_per_s"]
    if abs(factor - 1) > SAME:
        faults["wrong_factor"] = (
            f"what it calls bus bandwidth is {units.times(factor)} that of the definition for {row['collective']} on "
            f"{row['ranks']} ranks: bytes over time is the *algorithm* bandwidth"
        )
    merits = ("every rank has the right values, and the clock stops when they are there",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, () if faults else merits)


def _values(row: dict) -> dict[str, str]:
    wrong, ranks, share = row["wrong_ranks"], row["ranks"], units.percent(row["wrong_share"])
    if not wrong:
        return {}
    if not row["wrong_on_rank_0"]:
        return {
            "rank_0_only": f"rank 0's values are right, those of {wrong} of {ranks} ranks are not: a check on rank 0 "
            "alone sees nothing"
        }
    return {
        "no_all_gather": f"{wrong} of {ranks} ranks have wrong values, {share} of all: whole sums are not passed on"
    }


def _times(row: dict) -> dict[str, str]:
    took, late, again = (row[f"{name}seconds"] for name in ("", "late_", "again_"))
    if late > LATE * took:
        return {
            "unsynchronised": f"its clock stops after {units.seconds(took)}, {units.seconds(late)} before the data are "
            "there: it times the launch"
        }
    if not row["calls_before"]:
        return {
            "cold": f"it makes no call before its clock starts and shows {units.seconds(took)}; the same call once "
            f"more takes {units.seconds(again)}: the start-up is inside"
        }
    return {}
