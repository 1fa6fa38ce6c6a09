"""Check what the student wrote, and name what is wrong with an attention that claims to be FlashAttention-2."""

from __future__ import annotations

from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.attention.bugs import SYMPTOMS
from labkit.labs.attention.exercise import SETTINGS, judge_online
from labkit.labs.attention.plan import PROBE
from labkit.story import units

EXERCISES = ("online_softmax",)
TOLERANCE = 1e-3  # float32
TOO_MUCH = 1.01  # a probability may be this times too large


@judges_answers
def check(exercise: str, *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's answer to `exercise` ("online_softmax") and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(EXERCISES)}")
    return judge_online(called(f"attention.{exercise}", [list(setting) for setting in SETTINGS.values()], patience_s))


def suspects() -> tuple[str, ...]:
    """Give the names of the broken attentions, in an order that gives nothing away."""
    return lined_up(SYMPTOMS)


def diagnose(run) -> Markdown:
    """Name the fault of every variant of a Trial run, from its row alone."""
    return diagnosed(map(verdict_of, run.rows.to_dict("records")))


def verdict_of(row: dict) -> Verdict:
    """Give the verdict on one variant's row: a sentence a fault."""
    faults: dict[str, str] = {}
    if row["sees_ahead"] >= PROBE - 1:
        faults["not_causal"] = f"with a mask asked for, a query still sees all {row['sees_ahead']} keys after its own"
    elif row["sees_ahead"] > 0:
        faults["no_diagonal_mask"] = (
            f"a query sees up to {row['sees_ahead']} keys after its own: nothing is masked inside the diagonal's tile"
        )
    if row["early_weight"] > TOO_MUCH:
        faults["not_rescaled"] = (
            f"a probability comes out {units.times(row['early_weight'])} too large: what was summed under a lower "
            "maximum is not scaled down when the maximum rises"
        )
    if row["forward_largest"] >= 1:
        faults["square"] = "its forward makes an N×N tensor"
    if row["backward_largest"] >= 1:
        faults["square_backward"] = "its backward makes an N×N tensor"
    if row["products"]:
        faults["torch_inside"] = f"{row['products']} of torch's own matrix operators run in it: no kernel does its work"
    if not row["keeps_lse"]:
        faults["no_lse"] = "it keeps no log-sum-exp a row, of which a backward by tiles could make P again"
    worst = max(row["all_error"], row["causal_error"], row["gradient_error"])
    if worst > TOLERANCE and not faults:
        faults["wrong"] = f"it differs from float64 by {units.number(worst)}"
    merits = ("values and gradients are float64's, masks hold, and nothing N×N is ever there",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, () if faults else merits)
