"""Check what the student wrote, and name the mistake in an accounting by its numbers alone."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_uppercase

import pandas as pd
from IPython.display import Markdown

from labkit.course.exercise import called, judges_answers
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.accounting.bugs import ACCOUNTS, LABEL_GB, SYMPTOMS, TOKENS
from labkit.labs.accounting.exercise import BATCHES, SIZES, judge_batch, judge_devices
from labkit.labs.accounting.theory.memory import KINDS, WHOLE
from labkit.labs.accounting.theory.models import XXL
from labkit.labs.accounting.theory.sizes import of
from labkit.labs.accounting.theory.speed import COURSE, times
from labkit.story import units

EXERCISES = {"devices_needed": (SIZES, judge_devices), "compute_bound_batch": (BATCHES, judge_batch)}
CLOSE = 0.01
BITS = 8


@judges_answers
def check(exercise: str, *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's answer to `exercise`, one of EXERCISES, and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join(EXERCISES)}")
    settings, judge = EXERCISES[exercise]
    outcome = called(f"accounting.{exercise}", [list(setting) for setting in settings], patience_s)
    return outcome if isinstance(outcome, Verdict) else judge(outcome)


def suspects() -> tuple[str, ...]:
    """Give the names of the broken accountings, in an order that gives nothing away."""
    return lined_up(SYMPTOMS)


def accounts(names: Iterable[str]) -> pd.DataFrame:
    """Give a row an accounting, by letter: GB by kind, devices of 80 GB for their sum, tokens of a batch to run."""
    rows = [ACCOUNTS[name]() for name in names]
    table = pd.DataFrame(rows, index=list(ascii_uppercase[: len(rows)]))
    table[list(KINDS)] = table[list(KINDS)] / units.GB
    return table.rename(columns={kind: f"{kind}_gb" for kind in KINDS}).round(1)


def diagnose(names: Iterable[str]) -> Markdown:
    """Name the fault of every one of these accountings, from its numbers alone."""
    return diagnosed(verdict_of(name, ACCOUNTS[name]()) for name in names)


def verdict_of(name: str, account: dict[str, float]) -> Verdict:
    """Give the verdict on one account of XXL: a sentence a fault."""
    faults: dict[str, str] = {}
    for kind, each in WHOLE.items():
        found = account[kind] / XXL.parameters
        if abs(found / each - 1) > CLOSE:
            said = f"{kind} take {units.number(found)} bytes a parameter, not {each}"
            faults[kind] = f"{said}: counted {found / each:g} times"
    per_number = account["activations"] / TOKENS / XXL.kept()
    if abs(per_number / 2 - 1) > CLOSE:
        why = ", its bits taken for bytes" if abs(per_number / 2 / BITS - 1) < CLOSE else ""
        faults["activations"] = f"an activation in bfloat16 takes {units.number(per_number)} bytes, not 2{why}"
    total, room = sum(account[kind] for kind in KINDS), account["devices"] * of(LABEL_GB, "GB")
    if room < total:
        faults["devices"] = (
            f"{account['devices']} devices hold {units.number(room / units.GB, 4)} GB of its own "
            f"{units.number(total / units.GB, 4)}; they would do if the label meant GiB"
            if account["devices"] * of(LABEL_GB, "GiB") >= total
            else f"{account['devices']} devices hold {units.number(room / total, 2)} of its own total"
        )
    one = times(COURSE, XXL, account["tokens"])
    if one.math_s < one.fsdp_s + one.tensor_s:
        faults["batch"] = (
            f"with {units.count(account['tokens'])} tokens computing takes {units.seconds(one.math_s)} a block and "
            f"communicating {units.seconds(one.fsdp_s + one.tensor_s)}: the bound is a least batch, not a largest one"
        )
    merits = () if faults else ("16 bytes a parameter, 2 an activation, enough devices, a batch above the bound",)
    return Verdict(name, WRONG if faults else RIGHT, faults, merits)
