"""The exercises of lab 10: the cheapest number of buckets, two methods of the replicas, and the bug in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython.display import HTML

from labkit.course.exercises import CORE, STRETCH, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake, relative_distance
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.ddp_from_scratch.plan import CASES, Implementations
from lessons.ddp_from_scratch.tables import implementations, symptoms

if TYPE_CHECKING:
    from labkit.engine.run import Run

_WORKER = "lessons.ddp_from_scratch.worker"

SYMPTOMS = {  # what is wrong with each of the replicas that train with a bug
    "one_rank": "gradients are added up on rank 0 only; the other ranks keep something else",
    "one_bucket": "the bucket size is ignored: everything is sent after backward, in one call",
    "unwaited": "finish() returns while gradients are still being sent",
}
NUMBER_OF_RANKS = (2, 3, 4)
CLOSE = {"bfloat16": 0.05, "mixed": 0.05}  # of the gradients' length; rounding alone makes such a difference
_USUAL_CLOSE = 1e-4
_WHAT_TO_CHECK = {  # where the numbers alone do not say which mistake it is
    "exchange": "do all ranks join the gradients in the same order, wait for the call, and copy each part back?",
    "ready": "is each bucket sent in its turn, only when nothing of it is missing, and only while `self.sync` is true?",
}


def _shown(hole: str) -> list[tuple[int, str, str, int]]:
    """Return ranks, hole, case and seed of what the notebook tries: every awkward case, on 2, 3 or 4 ranks."""
    return [(ranks, hole, case, 0) for ranks, case in zip(cycle(NUMBER_OF_RANKS), CASES)]


def _hidden(hole: str, random: Random) -> list[tuple[int, str, str, int]]:
    chosen = random.sample(CASES, 6)
    return [(random.choice(NUMBER_OF_RANKS), hole, case, random.randint(1, 10**6)) for case in chosen]


def judge_gradients(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on a method in its class: `given` is what `tried.drive` tells of each rank, `due` the same of
    the reference solution, for each of `inputs`.
    """
    exercise, faults = inputs[0][1], {}
    for (ranks, hole, case, _), mine, right in zip(inputs, given, due, strict=True):
        close = CLOSE.get(case, _USUAL_CLOSE)
        fault = _gradient_fault(hole, ranks, mine, right, close) or _sending_fault(hole, mine, right)
        if fault:
            faults.setdefault(fault[0], f"in the case `{case}` with {ranks} ranks, {fault[1]}")
    if not faults:
        early, every = (sum(counts) for counts in zip(*map(_early, given[0][0]["events"]), strict=True))
    sent = "one all-reduce in each step" if exercise == "exchange" else "" if faults else f"{early} of {every} calls"
    sent += "" if exercise == "exchange" else " are made while backward still computes"
    merit = f"the gradients of the reference solution in {len(CASES)} cases, on 2, 3 and 4 ranks"
    return Verdict.of_faults(exercise, faults, merit, sent)


def _early(events: list) -> tuple[int, int]:
    """Return how many all-reduces were called before the last gradient, and how many in all."""
    last = max((place for place, event in enumerate(events) if event == "gradient"), default=0)
    return sum(type(event) is int for event in events[:last]), sum(type(event) is int for event in events)


def _waits_early(events: list) -> bool:
    return "wait" in events and "gradient" in events[events.index("wait") :]


def _gradient_fault(hole: str, ranks: int, given: list, due: list, close: float) -> tuple[str, str] | None:
    """Return the first wrong step of the ranks, by the mistake behind it."""
    for step, right_of_ranks in enumerate(zip(*(rank["gradients"] for rank in due), strict=True)):
        mine_of_ranks = [rank["gradients"][step] for rank in given]
        for rank, (mine, right) in enumerate(zip(mine_of_ranks, right_of_ranks, strict=True)):
            for number, (gradient, due_gradient) in enumerate(zip(mine, right, strict=True)):
                if (gradient is None) != (due_gradient is None):
                    has = "has no gradient" if gradient is None else "has a gradient, and should have none"
                    return "none", f"weight {number} {has} on rank {rank}"
        pairs = [_vectors(mine, right) for mine, right in zip(mine_of_ranks, right_of_ranks, strict=True)]
        errors = [relative_distance(mine, right) for mine, right in pairs]
        if max(errors) <= close:
            continue
        when = "gradients" if step == 0 else "gradients of the second step"
        times = [float(mine @ right / (right @ right)) if mine.shape == right.shape else 0.0 for mine, right in pairs]
        if all(relative_distance(mine, times[0] * right) <= close * times[0] for mine, right in pairs):
            return _scale_fault(when, times[0], ranks)
        if errors[0] <= close:
            return "one_rank", f"the {when} are right on rank 0 alone: every rank needs the mean"
        if errors[-1] <= close:
            late = f"right on rank {ranks - 1}, which begins later than the others, and on no other"
            return "unwaited", f"the {when} are {late}: wait for the bytes before you use them"
        if all(relative_distance(np.sort(mine), np.sort(right)) <= close for mine, right in pairs):
            return "mixed_up", f"the {when} have the right numbers in wrong places: which part belongs to which weight?"
        if not any(type(event) is int for rank in given for event in rank["events"][step]):
            return "silent", "no rank calls an all-reduce of gradients, so no rank gets their mean"
        off = units.percent(max(errors))
        what = f"the {when} differ from the mean over all ranks by {off} of their length"
        return "wrong", f"{what}: {_WHAT_TO_CHECK[hole]}"
    return None


def _scale_fault(when: str, times: float, ranks: int) -> tuple[str, str]:
    if abs(times / ranks - 1) < 0.01:
        return "summed", f"the {when} are {ranks} times too large: added up over the ranks, and not divided"
    if abs(times * ranks - 1) < 0.01:
        return "divided_twice", f"the {when} are {ranks} times too small: divided by the number of ranks twice"
    return "factor", f"the {when} are {units.number(times)} times the mean over all ranks: divide by `self.ranks`"


def _vectors(mine: list, right: list) -> tuple[np.ndarray, np.ndarray]:
    """Return all gradients of a rank as one vector each."""
    mine, right = ([number for gradient in side for number in gradient or ()] for side in (mine, right))
    return np.array(mine), np.array(right)


def _sending_fault(hole: str, given: list, due: list) -> tuple[str, str] | None:
    """Return what is wrong in the calls of right gradients."""
    for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
        for events, right_events in zip(mine["events"], right["events"], strict=True):
            (early, calls), (right_early, right_calls) = _early(events), _early(right_events)
            if calls != right_calls:
                enough = "enough" if calls > right_calls else "needed"
                enough = f"{right_calls} {'is' if right_calls == 1 else 'are'} {enough}"
                return "calls", f"rank {rank} makes {calls} all-reduces of gradients in a step, and {enough}"
            if hole == "ready" and _waits_early(events) and not _waits_early(right_events):
                what = f"rank {rank} waits for an all-reduce before its last gradient is there"
                return "waits", f"{what}, so backward hides nothing: `exchange` waits when backward has ended"
            if hole == "ready" and early < right_early:
                what = f"rank {rank} calls {early} of {calls} all-reduces before its last gradient is there"
                return "late", f"{what}, and {right_early} could be hidden behind backward: send what is ready"
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
    (13_000_000_000, 10e-6, 100e9),
)  # bytes of all gradients, seconds per call, bytes per second


def _root(total: float, call_s: float, rate: float) -> float:
    return math.sqrt(total / rate / call_s)


def _cost(count: int, total: float, call_s: float, rate: float) -> float:
    return count * call_s + total / count / rate


def _cheapest(*knobs: float) -> int:
    below = max(1, math.floor(_root(*knobs)))
    return min(below, below + 1, key=lambda count: _cost(count, *knobs))


def _totals(random: Random) -> list:
    """Return totals whose best number of buckets is better than its neighbours beyond rounding.

    The cost is least below one bucket, where the nearest number is not the cheapest, and above and below the middle
    between two numbers, among few buckets and many.
    """
    roots = [random.uniform(0.2, 0.9), random.uniform(1.445, 1.49)]
    for least, most in ((2, 7), (9, 28), (31, 48), (101, 300)):
        roots += [random.randint(least, most) + random.uniform(*part) for part in ((0.1, 0.3), (0.7, 0.9))]
    settings = [(random.choice((5e-6, 10e-6, 50e-6, 1e-3)), random.choice((10e9, 50e9, 100e9))) for _ in roots]
    return [
        (round(root**2 * call_s * rate), call_s, rate) for root, (call_s, rate) in zip(roots, settings, strict=True)
    ]


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


def _steps(hole: str, file: str, *, size: str = "small", gpus: int = 0) -> list[Implementations]:
    strategies = ("none", {"exchange": "flat", "ready": "overlapped"}[hole], "ddp")
    return [Implementations.sized(size, gpus=gpus, seeds=1, strategies=strategies, **{hole: file})]


def judge_steps(hole: str, run: Run) -> Verdict:
    """Return the verdict on a method whose steps were timed beside the reference solution's and torch's DDP's."""
    table = implementations(run).set_index("strategy")
    if (failed := table[table["status"] != "ok"]["status"]).size:
        return Verdict.of_faults(hole, {"failed": f"on {run.plan.workers_text} a step ends with {failed.iloc[0]}"})
    yours, reference, torchs = (
        units.seconds(table.loc[name, "step_ms"] / 1e3) for name in (*table.index[-1:], *table.index[1:3])
    )
    times = f"{yours} with your method, {reference} with the reference solution, and {torchs} with torch's DDP"
    return Verdict.of_faults(hole, {}, f"on {run.plan.workers_text} a training step takes {times}")


_PACKED = ("tried", "replicas", "probe", "issued")


def _method(hole: str, home: str, **more: Any) -> Exercise:
    """Return the exercise to write the method `hole` of a class of replicas."""
    cases = Cases(
        partial(_hidden, hole),
        driver=f"{_WORKER}.tried",
        on_ranks=True,
        reference=(f"{_WORKER}.replicas.{home}.{hole}",),
        may_import=("labkit.worker.collectives", *(f"{_WORKER}.{name}" for name in _PACKED)),
        start_s=40.0,  # torch
    )
    trial = Trial(partial(_steps, hole), partial(judge_steps, hole))
    return Exercise(hole, _shown(hole), judge_gradients, solution=cases.reference, cases=cases, trial=trial, **more)


check = Exercises(
    "ddp_from_scratch",
    _BEST_COUNT,
    _method(
        "exchange",
        "Flat",
        grade=CORE,
        hints=(
            "`Naive` makes one call per gradient. Which torch function joins many tensors to one? And back?",
            "Flatten each gradient and join them. Divide by `self.ranks`, call one all-reduce of `self.group`, and "
            "copy each part back into its gradient: `gradient.copy_(part.view_as(gradient))`.",
            "`flat = torch.cat([gradient.flatten() for gradient in gradients]) / self.ranks`, then "
            "`dist.all_reduce(flat, group=self.group)`. The parts are `flat.split([gradient.numel() for gradient in "
            "gradients])`.",
        ),
    ),
    _method(
        "ready",
        "Overlapped",
        grade=STRETCH,
        hints=(
            "When may bucket 1 be sent if it is full before bucket 0? `self.works` has an entry for each bucket sent.",
            "Count down `self.missing` of this weight's bucket. Then send the next bucket as long as nothing is "
            "missing in it: one gradient may complete several.",
            "`self.missing[self.bucket_of[weight]] -= 1`, then `while len(self.works) < len(self.buckets) and not "
            "self.missing[len(self.works)]: self.send_next()`. Nothing of it happens unless `self.sync`.",
        ),
    ),
    imported_as="ddp",
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

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
