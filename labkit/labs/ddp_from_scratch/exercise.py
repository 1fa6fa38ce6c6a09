"""The student's buckets and the replicas with a bug: how each is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.course.exercise import Exercise, Exercises
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.ddp_from_scratch.bugs import SYMPTOMS
from labkit.labs.ddp_from_scratch.tables.steps import symptoms
from labkit.story import units
from labkit.story.words import listed

if TYPE_CHECKING:
    pass

SETTINGS = {  # the parameters in each bucket, then the parameters in the order in which their gradients arrive
    "with gradients from the last to the first": ([[5, 4], [3], [2, 1, 0]], [5, 4, 3, 2, 1, 0]),
    "with gradients mixed over buckets": ([[5, 4], [3, 2], [1, 0]], [4, 2, 5, 3, 1, 0]),
    "with bucket 1 full before bucket 0": ([[3, 2], [1, 0]], [1, 0, 3, 2]),
    "with three buckets full before bucket 0": ([[4], [3], [2], [1], [0]], [3, 2, 1, 4, 0]),
    "with the last bucket full first": ([[5, 4], [3, 2], [1, 0]], [1, 0, 5, 4, 3, 2]),
    "with a parameter that gets no gradient": ([[4], [3, 2], [1], [0]], [4, 2, 1, 0]),
}


def judge_started(returned: list) -> Verdict:
    """Return the verdict on which buckets start at each arrival: a list of lists of bucket numbers for each setting."""
    faults: dict[str, str] = {}
    for (where, (buckets, arrivals)), started in zip(SETTINGS.items(), returned, strict=True):
        if fault := _form(started, arrivals) or _fault(started, buckets, arrivals):
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
    merits = ("a bucket starts as soon as it is full and all before it have started: every rank in one order",)
    return Verdict("started", WRONG if faults else RIGHT, faults, () if faults else merits)


def _form(started, arrivals: list[int]) -> tuple[str, str] | None:
    lists = isinstance(started, list) and all(isinstance(now, list) for now in started)
    if lists and len(started) == len(arrivals) and all(type(number) is int for now in started for number in now):
        return None
    asked = f"{len(arrivals)} lists of bucket numbers, one an arrival"
    why = ": is a `return` missing?" if started is None else ""
    return "form", f"it gives {started!r:.60}, not {asked}{why}"


def _fault(started: list[list[int]], buckets: list[list[int]], arrivals: list[int]) -> tuple[str, str] | None:
    """Return the first thing that goes wrong, as its kind and a sentence."""
    begun: list[int] = []
    for place, (parameter, now) in enumerate(zip(arrivals, started, strict=True)):
        arrived, when = set(arrivals[: place + 1]), f"when gradient {parameter} arrives, bucket"
        for number in now:
            if not 0 <= number < len(buckets):
                return "unknown", f"{when} {number} starts; there are buckets 0 to {len(buckets) - 1}"
            if number in begun:
                return "twice", f"{when} {number} starts once more: its gradients would be averaged twice"
            if missing := sorted(set(buckets[number]) - arrived):
                return "early", f"{when} {number} starts without gradient {listed(map(str, missing))}"
            if number != len(begun):
                return "order", (
                    f"{when} {number} starts before bucket {len(begun)}: on a rank whose gradients come in another "
                    "order that one starts first, and all-reduces are paired by their order alone"
                )
            begun.append(number)
        if len(begun) < len(buckets) and set(buckets[len(begun)]) <= arrived:
            later = any(len(begun) in rest for rest in started[place + 1 :])
            said = "starts only later: less of backward is left to hide it" if later else "is full and never starts"
            return ("late" if later else "missing"), f"{when} {len(begun)} {said}"
    return None


_TOLERANCE = 1e-3  # of the gradients' length, in float32


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's symptoms: a sentence a fault."""
    faults: dict[str, str] = {}
    ranks, worst = row["ranks"], units.percent(row["error_worst"])
    if row["start_apart"] > 0:
        faults["no_first_broadcast"] = (
            f"before the first step a rank's weights are up to {units.number(row['start_apart'], 2)} from rank 0's: "
            "nobody sent those out"
        )
    elif abs(row["ratio"] - ranks) < 0.05 * ranks:
        faults["undivided"] = f"gradients are {units.number(row['ratio'])}× the mean, as many as ranks: a sum"
    elif row["error_worst"] > _TOLERANCE >= row["error_later"]:
        faults["unwaited"] = (
            f"when finish() comes back gradients are {worst} off, and a moment later they are right: it does not wait"
        )
    elif row["error_worst"] > _TOLERANCE >= row["error_rank_0"]:
        faults["one_rank"] = (
            f"rank 0's gradients are right and another rank's are {worst} off: a test that looks at rank 0 alone passes"
        )
    elif row["error_worst"] > _TOLERANCE:
        faults["wrong"] = f"gradients are {worst} off"
    if row["collectives"] != row["due"]:
        faults["bucket_size"] = (
            f"buckets of {row['bucket_mb']:g} MB make {row['due']} calls; it makes {row['collectives']}, of up to "
            f"{units.number(row['largest_mib'])} MiB, {row['before_last_gradient']} of them while gradients still come"
        )
    merits = () if faults else ("every rank has the mean when finish() comes back, in the buckets asked for",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)


check = Exercises("ddp_from_scratch", Exercise("started", list(SETTINGS.values()), judge_started))
suspects, diagnose = line_up(SYMPTOMS, lambda run: symptoms(run).to_dict("records"), verdict_of)
