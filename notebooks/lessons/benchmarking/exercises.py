"""The exercises of lab 06: is a change faster, a loop that times steps of a simulated device, and broken benchmarks.

Each exercise is one place: its judge, its cases and its hints; then the bugs to find.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course import answers
from labkit.course.answer_launch import launch_answer, printed_in, unanswered_verdict
from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.judging import Mistake, is_close, is_number, not_the_form
from labkit.course.lineup import line_up, why
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, Verdict
from labkit.story import units
from lessons.benchmarking.bugs import SYMPTOMS
from lessons.benchmarking.plan import SITUATIONS, Answer, Clocks
from lessons.benchmarking.tables import symptoms, wrong_by_rows
from lessons.benchmarking.theory.device import RAISES_AT, Device, replayed

if TYPE_CHECKING:
    from labkit.engine.run import Run

_STEADY = [0.100, 0.101, 0.099, 0.100, 0.102, 0.098, 0.100, 0.101]
COMPARED = (
    (_STEADY, [0.050, 0.051, 0.049, 0.050, 0.051, 0.049, 0.050, 0.050]),
    (_STEADY, [0.0995, 0.1005, 0.0985, 0.0995, 0.1015, 0.0975, 0.0995, 0.1005]),
    (_STEADY, [0.080, 0.081, 0.079, 0.080, 0.082, 0.078, 0.080, 0.900]),
    ([0.080, 0.081, 0.079, 0.080, 0.081], _STEADY),
    ([1.0, 1.4, 0.7, 1.2, 0.9, 1.3], [0.9, 1.3, 0.6, 1.1, 0.8, 1.2]),
    ([1.0, 1.02, 0.98, 1.01, 0.99], [0.97, 0.99, 0.95, 0.98, 0.96]),
    ([1.0, 1.1, 0.9, 1.0, 3.0], [0.8, 0.81, 0.79, 0.8, 0.8]),
    # As far apart as their noise exactly; less, but more than one noise alone; skewed, so that the ranges between the
    # quartiles overlap, or not, though the medians say otherwise; in an order in which no pair belongs together.
    ([8.0, 9.0, 10.0, 11.0, 12.0], [6.0, 7.0, 8.0, 9.0, 10.0]),
    ([10.0, 9.0, 12.0, 11.0, 8.0], [8.3, 7.3, 9.3, 6.3, 10.3]),
    ([6.0, 6.2, 10.0, 10.5, 10.6], [5.0, 4.9, 4.8, 6.5, 6.6]),
    ([10.0, 9.9, 9.8, 14.0, 14.2], [8.5, 5.0, 4.9, 9.0, 9.2]),
    ([1.1, 1.0, 1.2, 1.05, 1.15], [0.5, 0.62, 0.55, 0.6, 0.5]),
    # Even numbers of values, whose middle two differ; a little further apart than their noise.
    ([1.4, 1.0, 1.6, 1.2], [0.41, 0.3, 0.31, 0.4]),
    ([8.0, 9.0, 10.0, 11.0, 12.0], [5.95, 6.95, 7.95, 8.95, 9.95]),
)  # seconds of the steps before a change, and after it


def _half_range(seconds: list[float]) -> float:
    return _half_ranges(seconds)[0]


def _half_exclusive(seconds: list[float]) -> float:
    return _half_ranges(seconds)[1]


def _none(_seconds: list[float]) -> float:
    return 0.0


def _faster(before: list, after: list, middle: Callable = statistics.median, noise: Callable = _half_range) -> Any:
    """Return how many times faster the steps are after the change; None where the difference is within noise."""
    old, new = middle(before), middle(after)
    return old / new if abs(old - new) > noise(before) + noise(after) else None


_UNCLEAR = (0.6, 1.6)  # a difference of this many times its noise depends on how quartiles are defined


def _timings(random: Random) -> list:
    """Return steps before and after a change: slower, faster, the same within their noise, and some close to it.

    One pair differs by its noise exactly; one has even numbers of steps, whose middle two differ.
    """
    drawn: list[tuple] = [_close_to_noise(random, exclusive=exclusive) for exclusive in (True, False)]
    least, scale = random.randint(8, 40), random.uniform(0.1, 0.2)
    drawn += [
        tuple(random.sample([first + more for more in range(5)], 5) for first in (least, least - gain))
        for gain in (2, 2.05, 1.95)
    ]
    shares = (1.0, 1.2, 1.4, 1.6), (0.3, 0.31, 0.4, 0.41)
    drawn.append(tuple(random.sample([round(scale * share, 5) for share in side], 4) for side in shares))
    ratios = [0.5, 0.7, 1.001, 1.002, 1.4, 2.0]
    while ratios:
        before, after = (
            [round(length * random.uniform(0.97, 1.03), 5) for _ in range(random.randint(6, 10))]
            for length in (0.1, 0.1 * ratios[-1])
        )
        noise = sum(
            (high - low) / 2 for low, _, high in (statistics.quantiles(seconds, n=4) for seconds in (before, after))
        )
        if not _UNCLEAR[0] < abs(statistics.median(before) - statistics.median(after)) / noise < _UNCLEAR[1]:
            drawn.append((before, after))
            ratios.pop()
    return drawn


def _close_to_noise(random: Random, *, exclusive: bool) -> tuple[list[float], list[float]]:
    """Return steps whose medians differ by a little more than their noise.

    The noise of exclusive quartiles is above that difference if `exclusive`; else that of twice as wide quartiles is.
    """
    while True:
        before = [round(random.uniform(0.1, 0.12), 5) for _ in range(random.randint(5, 8))]
        narrow, wide = _half_ranges(before)
        gain = narrow + wide if exclusive else wide + 2 * narrow  # `after` has the same noise, so each counts twice
        if 1.2 * narrow < wide < 1.8 * narrow:
            return before, [round(seconds - gain, 5) for seconds in random.sample(before, len(before))]


_FASTER = compared(
    "faster",
    _faster,
    (
        Mistake(
            "noise", lambda old, new: _faster(old, new, noise=_none), "the medians differ by no more than their noise"
        ),
        Mistake(
            "upside_down",
            lambda old, new: 1 / gain if (gain := _faster(old, new)) else gain,
            "half the time is twice as fast, so 2, not 0.5",
        ),
        Mistake(
            "mean",
            lambda old, new: _faster(old, new, statistics.mean),
            "that compares the means, which one slow step changes",
        ),
        Mistake(
            "mean",
            lambda old, new: _faster(old, new, statistics.mean, _none),
            "that compares the means, which one slow step changes, and takes no noise into account",
        ),
        Mistake(
            "whole_range",
            lambda old, new: _faster(old, new, noise=lambda seconds: 2 * _half_range(seconds)),
            "that takes the whole distance between the quartiles as noise; half of it is asked for",
            throughout=True,
        ),
        Mistake(
            "other_quartiles",
            lambda old, new: _faster(old, new, noise=_half_exclusive),
            'the quartiles of `method="inclusive"` lie closer together than others, such as those that '
            "`statistics.quantiles` gives by default",
            throughout=True,
        ),
        Mistake(
            "deviation",
            lambda old, new: _faster(old, new, noise=statistics.stdev),
            "one slow step makes this noise large, as it does a standard deviation: take half the distance between the "
            "quartiles",
            throughout=True,
        ),
    ),
    result_form="a number or None",
    rule="compare the medians; they differ if their distance is larger than the sum of both noises",
    merit="a difference within noise is not called a gain, and one slow step changes nothing",
    inputs=COMPARED,
    grade=WARM_UP,
    cases=Cases(_timings),
    hints=(
        "One slow step in a list changes some averages much and others hardly. Which one does this lesson report?",
        "Take the median of each list, and half the distance between its quartiles. Only a difference above both "
        "halves together is a difference.",
        '`low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")`, and the half is `(high - low) /'
        " 2`. Return `old / new` where `abs(old - new)` is above the sum of the halves, otherwise None.",
    ),
)


_STEPS = {  # in words, by situation
    "asynchronous": "steps that return before their work is done",
    "slow_first": "two slow first steps",
    "noisy": "a few slow steps among the others",
}
_NEAR, _SPREAD_NEAR, _LEAST, _WARM_UPS = 0.002, 0.4, 5, 2
_MERITS = (
    "an asynchronous step, one with two slow first calls and a noisy one all give the right median and spread",
    "what a step raises reaches the caller",
)


def check_timed(exercise: str = "timed", *, patience_s: float = 20.0, size: str = "small", gpus: int = 0) -> Verdict:
    """Have a worker call the student's `timed` with several kinds of steps on a simulated device; judge the results.

    A right one then times a forward of the smallest size, beside the workers' own clock.
    """
    if (verdict := unanswered_verdict("benchmarking.timed")) is not None:
        return verdict
    run = launch_answer(exercise, Answer(answers=str(answers.folder())), patience_s, "a loop in it does not end")
    if isinstance(run, Verdict):
        return run
    verdict = judge_timed(run.rows.to_dict("records"), [(situation,) for situation in run.rows["situation"]])
    verdict = replace(verdict, printed=printed_in(run.rows))
    if verdict.outcome != RIGHT:
        return verdict
    plan = Clocks.sized(size, gpus=gpus, seeds=1, yours=str(answers.file_of("benchmarking.timed")))
    run = launch_answer(exercise, plan, patience_s, "a loop in it does not end")
    return run if isinstance(run, Verdict) else replace(verdict, merits=(*verdict.merits, clocks_text(run)))


def clocks_text(run: Run) -> str:
    """Say what three clocks read for a forward of the smallest size; takes a Clocks run."""
    row = run.rows.iloc[0]
    yours, workers, launched = (units.seconds(row[f"{name}_ms"] / 1e3) for name in ("yours", "worker", "launched"))
    said = f"on {run.plan.workers_text} a forward of `small` takes {yours} by your clock and {workers} by the workers'"
    return f"{said}; one that waits for nobody reads {launched}" if run.plan.device == "cuda" else said


def judge_timed(rows: Iterable[dict[str, Any]], cases: Iterable[Sequence[Any]]) -> Verdict:
    """Return the verdict on what `timed` gave, and which calls it made, for each kind of step and its scale.

    What it measured, and the true times, come from a device of the judge's own on which these calls are made again.
    """
    faults: dict[str, str] = {}
    for row, case in zip(rows, cases, strict=True):
        for name, sentence in _faults(row, replayed(str(row.get("calls", "")), *case)).items():
            faults.setdefault(name, sentence)
    if "form" in faults:  # it may never have called the step that raises
        faults.pop("swallowed", None)
    return Verdict.of_faults("timed", faults, *_MERITS)


def _faults(row: dict[str, Any], device: Device) -> dict[str, str]:
    """Return what is wrong with one call of `timed`: the fault's kind and its sentence."""
    given = row.get("given")
    shown = given if isinstance(given, str) else "something that no check can read"
    if device.situation in RAISES_AT:
        if device.failed and not isinstance(row.get("raised"), str):
            what = f"a step raises in call {RAISES_AT[device.situation]}, and `timed` returns {shown:.60}"
            return {"swallowed": f"{what}: an error must reach the caller, or a failed step looks like a fast one"}
        return {}
    due = "the median, the spread and the count as three numbers"
    if not isinstance(given, str):
        return {"form": f"it returns {shown}, not {due}"}
    result = json.loads(given)
    if not isinstance(result, list) or not _is_form(result):
        return {"form": f"it returns {not_the_form(result, due)}"}
    return _timing_faults(device, *result)


def _is_form(result: list) -> bool:
    return len(result) == 3 and all(map(is_number, result))


def _timing_faults(device: Device, median_s: float, spread_s: float, count: float) -> dict[str, str]:
    took, faults = device.took, {}
    where = f"with {_STEPS[device.situation]},"
    if not device.reads:
        return {
            "own_clock": "it never calls `clock()`: the steps run on a simulated device, and only "
            "`clock` knows its time"
        }
    if count < _LEAST or count > len(took):
        what = f"it returns {count:g} as the number of measurements and has called `step` {len(took)} times"
        return {"count": f"{where} {what}: measure {_LEAST} steps or more, and count only these"}
    if (before := len(took) - int(count)) < _WARM_UPS:
        faults["no_warm_up"] = (
            f"{where} it calls `step` {before} time{'' if before == 1 else 's'} before the first measurement: call it "
            f"{_WARM_UPS} times or more"
        )
    measured = took[-int(count) :]
    due = statistics.median(measured)
    if device.busy_stops:
        faults["unsynchronised"] = (
            f"{where} it reads the clock at the end of {device.busy_stops} steps before their work is done, and gives "
            f"{units.seconds(median_s)} where the median is {units.seconds(due)}: what waits for the work?"
        )
        return faults
    if device.alone < count:
        faults["together"] = (
            f"{where} {device.alone} of {count:g} steps have a reading of the clock right before and right after them: "
            "measure each step on its own"
        )
    if device.busy_starts:
        faults["busy_start"] = (
            f"{where} it starts the clock while earlier work still runs, and so measures that work, too: wait for it "
            "first"
        )
    if not is_close(median_s, due, _NEAR):
        faults |= _wrong_median(where, median_s, due, measured, took)
    elif not any(is_close(spread_s, half, _SPREAD_NEAR, 1e-6) for half in _half_ranges(measured)):
        faults |= _wrong_spread(where, spread_s, measured)
    return faults


def _wrong_median(where: str, given_s: float, due_s: float, measured: list[float], took: list[float]) -> dict[str, str]:
    sentence = f"{where} it gives {units.seconds(given_s)} where the median is {units.seconds(due_s)}"
    if abs(given_s / statistics.median(took) - 1) > _NEAR and abs(given_s / statistics.mean(took) - 1) < _NEAR:
        return {"first_inside": f"{sentence}: that is the mean of all calls, the first one included"}
    if abs(given_s / statistics.mean(measured) - 1) < _NEAR:
        return {"mean": f"{sentence}: that is the mean, which a few slow calls change; take the median"}
    if abs(given_s / due_s / 1000 - 1) < _NEAR:
        return {"unit": f"{sentence}: that is in ms; return seconds"}
    return {"value": sentence}


def _wrong_spread(where: str, given_s: float, measured: list[float]) -> dict[str, str]:
    due = _half_ranges(measured)[0]
    sentence = f"{where} it gives a spread of {units.seconds(given_s)}, and half the distance between the quartiles is"
    sentence = f"{sentence} {units.seconds(due)}"
    if len(measured) > 1 and abs(given_s - statistics.stdev(measured)) < 0.1 * statistics.stdev(measured):
        return {"deviation": f"{sentence}: that is the standard deviation, which one slow call makes large"}
    if abs(given_s - 2 * due) < _SPREAD_NEAR * due:
        return {"whole_range": f"{sentence}: that is the whole distance, twice as much"}
    return {"spread": sentence}


def _half_ranges(measured: list[float]) -> list[float]:
    """Return half the distance between the quartiles, by both definitions that `statistics` has."""
    quartiles = [statistics.quantiles(measured, n=4, method=method) for method in ("inclusive", "exclusive")]
    return [(high - low) / 2 for low, _, high in quartiles]


def _steps(random: Random) -> list:
    return [(situation, random.uniform(0.5, 4)) for situation in SITUATIONS]


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one benchmark's symptoms: a sentence a fault."""
    both = (
        f"it reports {units.seconds(row['reported_ms'] / 1e3)}, and the right one {units.seconds(row['true_ms'] / 1e3)}"
    )
    sentences = {
        "unsynchronised": f"at {row['in_flight']:.0f} stops of its clock the device still works: {both}",
        "first_inside": (
            f"no step runs before its clock does, and its first is {units.times(row['first_times'])} the median: {both}"
        ),
        "dropout_on": f"the losses of one batch differ by {100 * row['loss_apart']:.1g} %: dropout is on",
    }
    faults = {name: sentences[name] for name in wrong_by_rows(row)}
    return Verdict.of_faults(row["variant"], faults, "it measures what it is to measure")


check = Exercises(
    "benchmarking",
    _FASTER,
    Exercise(
        "timed",
        check=check_timed,
        grade=CORE,
        cases=Cases(
            _steps,
            judge_timed,
            driver="lessons.benchmarking.worker.device",
            may_import=("lessons.benchmarking.worker.device", "lessons.benchmarking.theory.device"),
        ),
        hints=(
            "`step()` returns before its work is done. What must happen between the step and the second reading of "
            "the clock?",
            "First call the step a few times without a clock. Then, for each measurement: wait for earlier work, read"
            " the clock, step, wait, read the clock again.",
            "In a loop of ten: `synchronize()`, `start = clock()`, `step()`, `synchronize()`, `seconds.append(clock()"
            " - start)`. Before the loop, call `step()` three times.",
        ),
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
_CODES = {
    name: code_of(f"lessons.benchmarking.bugs.{name}").replace(f"def {name}(", "def benchmark(") for name in SYMPTOMS
}
suspects, diagnose, show_suspects = line_up("benchmarking", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_so_far() -> HTML:
    """Ask why an eager forward of the smallest size is so far above the least time of its FLOP."""
    return why(
        "Its FLOP need a fraction of a millisecond. Why does the smallest size's eager forward take so much longer?",
        ("The GPU waits for the host", "Each kernel is shorter than its launch. The GPU has no work most of the time."),
        ("The weights have to be read", "True, but that takes about 0.15 ms from an H100's memory."),
        ("The first iterations are slow", "They are warm-ups here: the median leaves them out."),
    )
