"""Check what the student wrote, and name the bug in replicas that were tried beside one process."""

from __future__ import annotations

from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.ddp_from_scratch.bugs import SYMPTOMS
from labkit.labs.ddp_from_scratch.exercise import SETTINGS, judge_started
from labkit.labs.ddp_from_scratch.tables.trials import symptoms
from labkit.story import units

EXERCISES = ("started",)
TOLERANCE = 1e-3  # of the gradients' length, in float32


@judges_answers
def check(exercise: str, *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's answer to `exercise` ("started") and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(EXERCISES)}")
    return judge_started(called(f"ddp_from_scratch.{exercise}", [list(one) for one in SETTINGS.values()], patience_s))


def suspects() -> tuple[str, ...]:
    """Give the names of the broken replicas, in an order that gives nothing away."""
    return lined_up(SYMPTOMS)


def diagnose(run) -> Markdown:
    """Name the fault of every variant of a Trial run, from its ranks' rows alone."""
    return diagnosed(map(verdict_of, symptoms(run).to_dict("records")))


def verdict_of(row: dict) -> Verdict:
    """Give the verdict on one variant's symptoms: a sentence a fault."""
    faults: dict[str, str] = {}
    ranks, worst = row["ranks"], units.percent(row["error_worst"])
    if row["start_apart"] > 0:
        faults["no_first_broadcast"] = (
            f"before the first step a rank's weights are up to {units.number(row['start_apart'], 2)} from rank 0's: "
            "nobody sent those out"
        )
    elif abs(row["ratio"] - ranks) < 0.05 * ranks:
        faults["undivided"] = f"gradients are {units.number(row['ratio'])}× the mean, as many as ranks: a sum"
    elif row["error_worst"] > TOLERANCE >= row["error_later"]:
        faults["unwaited"] = (
            f"when finish() comes back gradients are {worst} off, and a moment later they are right: it does not wait"
        )
    elif row["error_worst"] > TOLERANCE >= row["error_rank_0"]:
        faults["one_rank"] = (
            f"rank 0's gradients are right and another rank's are {worst} off: a test that looks at rank 0 alone passes"
        )
    elif row["error_worst"] > TOLERANCE:
        faults["wrong"] = f"gradients are {worst} off"
    if row["collectives"] != row["due"]:
        faults["bucket_size"] = (
            f"buckets of {row['bucket_mb']:g} MB make {row['due']} calls; it makes {row['collectives']}, of up to "
            f"{units.number(row['largest_mib'])} MiB, {row['before_last_gradient']} of them while gradients still come"
        )
    merits = () if faults else ("every rank has the mean when finish() comes back, in the buckets asked for",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)
