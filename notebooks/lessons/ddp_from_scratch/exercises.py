"""The exercises of lab 10: the cheapest number of buckets, the order of sending, and the bug in replicas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from IPython.display import HTML

from labkit.course.answer_launch import call_text
from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.judging import Mistake, not_the_form
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.story.words import listed
from lessons.ddp_from_scratch.tables import symptoms

SYMPTOMS = {  # what is wrong with each of the replicas that train with a bug
    "one_rank": "gradients are added up on rank 0 only; the other ranks keep something else",
    "one_bucket": "the bucket size is ignored: everything is sent after backward, in one call",
    "unwaited": "finish() returns while gradients are still being sent",
}
SETTINGS = {  # the weights in each bucket, then the weights in the order in which their gradients arrive
    "with gradients from the last to the first": ([[5, 4], [3], [2, 1, 0]], [5, 4, 3, 2, 1, 0]),
    "with gradients mixed over buckets": ([[5, 4], [3, 2], [1, 0]], [4, 2, 5, 3, 1, 0]),
    "with bucket 1 full before bucket 0": ([[3, 2], [1, 0]], [1, 0, 3, 2]),
    "with three buckets full before bucket 0": ([[4], [3], [2], [1], [0]], [3, 2, 1, 4, 0]),
    "with the last bucket full first": ([[5, 4], [3, 2], [1, 0]], [1, 0, 5, 4, 3, 2]),
    "with a weight that gets no gradient": ([[4], [3, 2], [1], [0]], [4, 2, 1, 0]),
}


def judge_started(returned: list, settings: Sequence[Sequence[Any]]) -> Verdict:
    """Return the verdict on the buckets sent at each arrival: for each setting a list of lists of bucket numbers."""
    faults: dict[str, str] = {}
    for number, ((buckets, arrivals), started) in enumerate(zip(settings, returned, strict=True), start=1):
        shown = (name for name, setting in SETTINGS.items() if setting == (buckets, arrivals))
        where = next(shown, f"in case {number}")
        if fault := _form_fault(started, arrivals) or _start_fault(started, buckets, arrivals):
            faults.setdefault(fault[0], f"for {call_text('started', [buckets, arrivals])}, {where}, {fault[1]}")
    merit = "every bucket is sent as soon as it is full and all earlier ones are sent, in one order on all ranks"
    return Verdict.of_faults("started", faults, merit)


def _form_fault(started, arrivals: list[int]) -> tuple[str, str] | None:
    lists = isinstance(started, list) and all(isinstance(now, list) for now in started)
    if lists and len(started) == len(arrivals) and all(type(number) is int for now in started for number in now):
        return None
    expected = f"{len(arrivals)} lists of bucket numbers, one per arrival"
    return "form", f"it returns {not_the_form(started, expected)}"


def _start_fault(started: list[list[int]], buckets: list[list[int]], arrivals: list[int]) -> tuple[str, str] | None:
    """Return the first fault, as its kind and a sentence; None if there is none."""
    begun: list[int] = []
    for place, (parameter, now) in enumerate(zip(arrivals, started, strict=True)):
        arrived, when = set(arrivals[: place + 1]), f"when gradient {parameter} arrives, bucket"
        for number in now:
            if not 0 <= number < len(buckets):
                return "unknown", f"{when} {number} is sent; there are buckets 0 to {len(buckets) - 1}"
            if number in begun:
                return "twice", f"{when} {number} is sent again: its gradients would be averaged twice"
            if missing := sorted(set(buckets[number]) - arrived):
                return "early", f"{when} {number} is sent without gradient {listed(map(str, missing))}"
            if number != len(begun):
                return "order", (
                    f"{when} {number} is sent before bucket {len(begun)}. Another rank may send them in the other "
                    "order, and the first all-reduce of each rank is paired with the first of the others"
                )
            begun.append(number)
        if len(begun) < len(buckets) and set(buckets[len(begun)]) <= arrived:
            later = any(len(begun) in rest for rest in started[place + 1 :])
            fault = (
                "is full, but it is sent later, so less of backward is left to hide it"
                if later
                else "is full and never sent"
            )
            return ("late" if later else "missing"), f"{when} {len(begun)} {fault}"
    return None


_TOLERANCE = 1e-3  # of the gradients' length, in float32


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's symptoms, with a sentence per fault."""
    faults: dict[str, str] = {}
    worst = units.percent(row["error_worst"])
    if row["error_worst"] > _TOLERANCE >= row["error_later"]:
        faults["unwaited"] = (
            f"gradients are {worst} off when finish() returns and right a moment later: finish() does not wait"
        )
    elif row["error_worst"] > _TOLERANCE >= row["error_rank_0"]:
        faults["one_rank"] = (
            f"rank 0's gradients are right and another rank's are {worst} off: a test of rank 0 alone passes"
        )
    elif row["error_worst"] > _TOLERANCE:
        faults["wrong"] = f"gradients are {worst} off"
    if row["collectives"] != row["expected"]:
        calls = f"{row['collectives']} call{'' if row['collectives'] == 1 else 's'}"
        faults["bucket_size"] = (
            f"buckets of {row['bucket_mb']:g} MiB should make {row['expected']} calls; it makes {calls}, the largest "
            f"of {units.number(row['largest_mib'])} MiB; {row['before_last_gradient']} while backward still computes"
        )
    merit = "every rank has the mean when finish() returns, sent in buckets of the size asked for"
    return Verdict.of_faults(row["variant"], faults, merit)


BYTES = (
    (8_000_000_000, 100e-6, 100e9),
    (2_100_000, 10e-6, 100e9),
    (100_000_000, 20e-6, 50e9),
    (500_000, 50e-6, 100e9),
    (7_000_000, 10e-6, 100e9),
    (1_000_000_000, 1e-3, 10e9),
)  # bytes of all gradients, seconds per call, bytes per second


def _root(total: float, call_s: float, rate: float) -> float:
    return math.sqrt(total / rate / call_s)


def _cost(count: int, total: float, call_s: float, rate: float) -> float:
    return count * call_s + total / count / rate


def _cheapest(*knobs: float) -> int:
    below = max(1, math.floor(_root(*knobs)))
    return min(below, below + 1, key=lambda count: _cost(count, *knobs))


def _totals(random: Random) -> list:
    """Return totals whose best number of buckets is better than its neighbours beyond rounding."""
    drawn: list[tuple] = []
    while len(drawn) < 6:
        call_s, rate = random.choice((5e-6, 10e-6, 50e-6, 1e-3)), random.choice((10e9, 50e9, 100e9))
        root = random.uniform(1.2, 60)
        below = int(root)
        if abs(below * (below + 1) - root**2) > 0.05 * root:
            drawn.append((round(root**2 * call_s * rate), call_s, rate))
    return drawn


_BEST_COUNT = compared(
    "best_count",
    _cheapest,
    (
        Mistake(
            "bytes",
            lambda s, o, w: math.sqrt(s * w * o),
            "that is the size of a bucket in bytes; return the number of buckets",
        ),
        Mistake("unrounded", _root, "the number of buckets is whole"),
        Mistake(
            "nearest",
            lambda *knobs: max(1, round(_root(*knobs))),
            "the nearest whole number is not always the cheapest",
        ),
        Mistake("none", lambda *_: 0, "at least one bucket is needed"),
        Mistake("rounded_down", lambda *knobs: max(1, math.floor(_root(*knobs))), "one bucket more is cheaper here"),
        Mistake("rounded_up", lambda *knobs: math.ceil(_root(*knobs)), "one bucket fewer is cheaper here"),
        Mistake(
            "upside_down", lambda s, o, w: max(1, round(1 / _root(s, o, w))), "more bytes need more buckets, not fewer"
        ),
    ),
    result_form="a whole number of buckets",
    rule="return the whole number n, at least 1, that has the least cost n·o + s/(n·w)",
    merit="no other whole number of buckets costs less",
    inputs=BYTES,
    grade=WARM_UP,
    cases=Cases(_totals),
    hints=(
        "Two costs: every call costs o, and the last bucket cannot be hidden. Which of them falls with more buckets?",
        "The cost is n·o + s/(n·w). As a function of any n it is least at √(s/(w·o)). Buckets come whole, "
        "and there is at least one.",
        "`below = max(1, int((total_bytes / bytes_per_s / call_s) ** 0.5))`. Compute the cost for `below` "
        "and `below + 1`, and return the one that costs less.",
    ),
)


def _arrivals(random: Random) -> list:
    drawn = []
    for unused in (0, 0, 0, 1):
        weights = [*range(random.randint(5, 9))][::-1]
        cuts = sorted(random.sample(range(1, len(weights)), random.randint(1, 3)))
        buckets = [weights[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(weights)], strict=True)]
        drawn.append((buckets, random.sample(weights, len(weights) - unused)))
    return drawn


check = Exercises(
    "ddp_from_scratch",
    _BEST_COUNT,
    Exercise(
        "started",
        list(SETTINGS.values()),
        judge_started,
        grade=CORE,
        cases=Cases(_arrivals),
        hints=(
            "When may bucket 1 be sent if it is full before bucket 0? Look at the example in the text.",
            "Keep the set of gradients that have arrived, and the number of the next bucket to send. After "
            "each arrival, send as many buckets as possible, in order.",
            "After `arrived.add(weight)`: `while sent < len(buckets) and set(buckets[sent]) <= arrived:` "
            "append `sent` to this arrival's list, and add 1 to `sent`.",
        ),
    ),
    imported_as="ddp",
)
hint, solution, attempts = check.hint, check.solution, check.attempts

_RIGHT = """
class Bucketed:
    def __init__(self, model, bucket_mb):
        for weight in model.parameters():
            broadcast(weight, src=0)
        weights = reversed([*model.parameters()])
        self.buckets = fill(weights, bucket_mb)
        self.sending = []

    def bucket_is_full(self, bucket):
        bucket.flat /= ranks
        work = all_reduce(bucket.flat, async_op=True)
        self.sending.append(work)

    def finish(self):
        for work in self.sending:
            work.wait()
        self.sending.clear()
"""
_CODES = with_bugs(
    _RIGHT,
    {
        "one_rank": [("all_reduce(bucket.flat, async_op=True)", "reduce(bucket.flat, dst=0, async_op=True)")],
        "one_bucket": [("fill(weights, bucket_mb)", "fill(weights, inf)")],
        "unwaited": [("        for work in self.sending:\n            work.wait()\n", "")],
    },
)
suspects, diagnose, show_suspects = line_up("ddp_from_scratch", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_not_smaller() -> HTML:
    """Ask why many small buckets, which leave earlier, are not best by the formula."""
    return why(
        "Small buckets leave earlier. Why are the smallest not best, by the formula?",
        ("Each call stops backward", "The same process computes and calls. Hundreds of calls add up to milliseconds."),
        ("They send more bytes", "All sizes send the same bytes: every gradient once."),
        (
            "The link is busy with the large ones",
            "One run asks for one size: small and large buckets are not sent together.",
        ),
    )
