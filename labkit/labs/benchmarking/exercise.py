"""The student's `timed` and the benchmarks with a bug: how each is judged."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from typing import Any

from labkit.course import answers
from labkit.course.exercise import launched, unanswered, with_version
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.benchmarking.bugs import SYMPTOMS
from labkit.labs.benchmarking.plan import Answer
from labkit.labs.benchmarking.tables.trials import symptoms, wrong_by_rows
from labkit.story import units

EXERCISES = ("timed",)  # what `%%answer` may name
_NEAR, _SPREAD_NEAR, _LEAST = 0.02, 0.4, 5
_MERITS = (
    "an asynchronous step, one with a slow first call and a noisy one all give the right median and spread",
    "what a step raises reaches the caller",
)


def check(exercise: str = "timed", *, patience_s: float = 20.0) -> Verdict:
    """Have a worker call the student's `timed` with four kinds of steps on a simulated device, and judge what it gives.

    Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"{exercise!r} is no exercise; there is {', '.join(EXERCISES)}")
    if (verdict := unanswered("benchmarking.timed")) is not None:
        return verdict
    plan = Answer(answers=str(answers.folder()))
    run = launched("timed", plan, patience_s, "a loop in it does not end")
    verdict = run if isinstance(run, Verdict) else judge_timed(run.rows.to_dict("records"))
    return with_version("benchmarking", "timed", verdict)


check.names = EXERCISES  # type: ignore[attr-defined]


def judge_timed(rows: Iterable[dict[str, Any]]) -> Verdict:
    """Return the verdict on the rows of an Answer run: what it gave for each kind of step, beside the true times."""
    faults: dict[str, str] = {}
    for row in rows:
        for name, sentence in _faults(row).items():
            faults.setdefault(name, sentence)
    return Verdict("timed", WRONG if faults else RIGHT, faults, () if faults else _MERITS)


def _faults(row: dict[str, Any]) -> dict[str, str]:
    """Return what is wrong with one call of `timed`: the fault's kind and its sentence."""
    situation, given = row["situation"], row.get("given")
    if situation == "raises":
        if isinstance(given, str):
            what = f"a step raises in its third call, and `timed` returns {given:.60}"
            return {"swallowed": f"{what}: an error must reach the caller, or a failed step looks like a fast one"}
        return {}
    result = json.loads(given) if isinstance(given, str) else None
    if not isinstance(result, list) or not _is_form(result):
        what = "something that no check can read" if not isinstance(given, str) else f"{given:.60}"
        return {"form": f"it returns {what}, not the median, the spread and the count as three numbers"}
    return _timing_faults(row, *result)


def _is_form(result: list) -> bool:
    return len(result) == 3 and all(isinstance(one, int | float) and not isinstance(one, bool) for one in result)


def _timing_faults(row: dict[str, Any], median_s: float, spread_s: float, count: float) -> dict[str, str]:
    took, situation, faults = list(row["took"]), row["situation"], {}
    told = f"in the {situation.replace('_', ' ')} situation"
    if not row["reads"]:
        return {"own_clock": "it never calls `clock()`: the steps run on a simulated device, whose time only it knows"}
    if count < _LEAST or count > len(took):
        return {"count": f"{told} it counts {count:g} measurements of {len(took)} calls: take {_LEAST} or more"}
    if len(took) == count:
        faults["no_warm_up"] = (
            f"{told} every call counts, the first one too: call the step a few times before the clock"
        )
    measured = took[-int(count) :]
    due = statistics.median(measured)
    if row["busy_stops"]:
        faults["unsynchronised"] = (
            f"{told} the clock is read while {row['busy_stops']} steps are still under way: it says "
            f"{units.seconds(median_s)} for {units.seconds(due)}; call `synchronize()` before you read it"
        )
        return faults
    if row["busy_starts"]:
        faults["busy_start"] = (
            f"{told} the clock starts while earlier work still runs, which is then counted in: call `synchronize()` "
            "before it, too"
        )
    if abs(median_s / due - 1) > _NEAR:
        faults |= _wrong_median(told, median_s, due, measured, took)
    elif not any(abs(spread_s - due) <= _SPREAD_NEAR * due + 1e-6 for due in _half_ranges(measured)):
        faults |= _wrong_spread(told, spread_s, measured)
    return faults


def _wrong_median(told: str, given_s: float, due_s: float, measured: list[float], took: list[float]) -> dict[str, str]:
    said = f"{told} it gives {units.seconds(given_s)} where the median is {units.seconds(due_s)}"
    if abs(given_s / statistics.median(took) - 1) > _NEAR and abs(given_s / statistics.mean(took) - 1) < _NEAR:
        return {"first_inside": f"{said}: that is the mean of all calls, the first one included"}
    if abs(given_s / statistics.mean(measured) - 1) < _NEAR:
        return {"mean": f"{said}: that is the mean, which a few slow calls move; take the median"}
    if abs(given_s / due_s / 1000 - 1) < _NEAR:
        return {"unit": f"{said}: that is in ms; return seconds"}
    return {"value": said}


def _wrong_spread(told: str, given_s: float, measured: list[float]) -> dict[str, str]:
    due = _half_ranges(measured)[0]
    said = f"{told} the spread is {units.seconds(given_s)}, and half the distance between the quartiles is"
    said = f"{said} {units.seconds(due)}"
    if len(measured) > 1 and abs(given_s - statistics.stdev(measured)) < 0.1 * statistics.stdev(measured):
        return {"deviation": f"{said}: that is the standard deviation, which one slow call makes large"}
    if abs(given_s - 2 * due) < _SPREAD_NEAR * due:
        return {"whole_range": f"{said}: that is the whole distance"}
    return {"spread": said}


def _half_ranges(measured: list[float]) -> list[float]:
    """Return half the distance between the quartiles, by both definitions that `statistics` has."""
    quartiles = [statistics.quantiles(measured, n=4, method=method) for method in ("inclusive", "exclusive")]
    return [(high - low) / 2 for low, _, high in quartiles]


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one benchmark's symptoms: a sentence a fault."""
    said = (
        f"it reports {units.seconds(row['reported_ms'] / 1e3)}, and the right one {units.seconds(row['true_ms'] / 1e3)}"
    )
    sentences = {
        "unsynchronised": f"at {row['in_flight']:.0f} stops of its clock the device still works: {said}",
        "first_inside": (
            f"no step runs before its clock does, and its first is {units.times(row['first_times'])} the median: {said}"
        ),
        "dropout_on": f"the losses of one batch differ by {100 * row['loss_apart']:.1g} %: dropout is on",
        "uncleared": f"its gradients end {units.times(row['gradient_times'])} as long as those of one backward",
        "data_inside": f"{row['batches_inside']:.0f} batches are made while its clock runs: {said}",
    }
    faults = {name: sentences[name] for name in wrong_by_rows(row)}
    merits = () if faults else ("it measures what it is to measure",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)


suspects, diagnose = line_up(SYMPTOMS, lambda run: symptoms(run).to_dict("records"), verdict_of)
