"""The check of a student's order of buckets: right and wrong answers, each fault by its kind."""

import json

import pytest

from labkit.course.verdict import RIGHT, WRONG, Verdict
from lessons.ddp_from_scratch.exercises import SETTINGS, judge_started


def right(buckets, arrivals):
    begun, arrived, started = 0, set(), []
    for parameter in arrivals:
        arrived.add(parameter)
        now = []
        while begun < len(buckets) and set(buckets[begun]) <= arrived:
            now.append(begun)
            begun += 1
        started.append(now)
    return started


def when_full(buckets, arrivals):
    """Start a bucket when it is full, in whatever order that is."""
    full = [max(map([*arrivals, *range(9)].index, bucket)) for bucket in buckets]
    return [[number for number, at in enumerate(full) if at == place] for place in range(len(arrivals))]


def one_at_a_time(buckets, arrivals):
    begun, arrived, started = 0, set(), []
    for parameter in arrivals:
        arrived.add(parameter)
        full = begun < len(buckets) and set(buckets[begun]) <= arrived
        started.append([begun] if full else [])
        begun += full
    return started


def at_the_end(buckets, arrivals):
    whole = [number for now in right(buckets, arrivals) for number in now]
    return [[] for _ in arrivals[1:]] + [whole]


def at_the_first(buckets, arrivals):
    """Start a bucket when its first gradient comes."""
    seen, started = 0, []
    for parameter in arrivals:
        first = seen < len(buckets) and parameter in buckets[seen]
        started.append([seen] if first else [])
        seen += first
    return started


def again(buckets, arrivals):
    """Start the bucket of each gradient that comes after it was full."""
    started, begun = right(buckets, arrivals), []
    for now in started:
        begun += now
        now += begun[:1] if not now else []
    return started


def everything_last(buckets, arrivals):
    """Start at the end what never was full, too."""
    started = right(buckets, arrivals)
    begun = {number for now in started for number in now}
    return [*started[:-1], started[-1] + [number for number in range(len(buckets)) if number not in begun]]


def from_one(buckets, arrivals):
    return [[number + 1 for number in now] for now in right(buckets, arrivals)]


def all_full_once_first_is(buckets, arrivals):
    """Hold everything back until bucket 0 is full, then start whatever is full."""
    arrived, begun, started = set(), set(), []
    for parameter in arrivals:
        arrived.add(parameter)
        now = [n for n, bucket in enumerate(buckets) if set(bucket) <= arrived and n not in begun]
        now = now if set(buckets[0]) <= arrived else []
        begun |= {*now}
        started.append(now)
    return started


def by_number_of_arrivals(buckets, arrivals):
    """Start a bucket when as many gradients are there as it and all before it have parameters."""
    begun, started = 0, []
    for place in range(len(arrivals)):
        full = begun < len(buckets) and sum(map(len, buckets[: begun + 1])) <= place + 1
        started.append([begun] if full else [])
        begun += full
    return started


def by_the_last_of_a_bucket(buckets, arrivals):
    """Start a bucket when the gradient of its last parameter comes."""
    begun, seen, started = 0, set(), []
    for parameter in arrivals:
        seen.add(parameter)
        now = []
        while begun < len(buckets) and buckets[begun][-1] in seen:
            now.append(begun)
            begun += 1
        started.append(now)
    return started


def only_the_open_bucket(buckets, arrivals):
    """Count the gradients of the bucket that is next, and forget those that came before it was."""
    begun, left, started = 0, len(buckets[0]), []
    for parameter in arrivals:
        full = False
        if begun < len(buckets) and parameter in buckets[begun]:
            left -= 1
            full = not left
        started.append([begun] if full else [])
        if full:
            begun += 1
            left = len(buckets[begun]) if begun < len(buckets) else 0
    return started


def own_bucket_and_next(buckets, arrivals):
    """When a bucket starts, start the next one, too, if it is full, but none after it."""
    begun, arrived, started = 0, set(), []
    for parameter in arrivals:
        arrived.add(parameter)
        now = []
        while begun < len(buckets) and set(buckets[begun]) <= arrived and len(now) < 2:
            now.append(begun)
            begun += 1
        started.append(now)
    return started


def judged(function) -> Verdict:
    """Give the verdict on a function's results as they come back from a worker, through JSON."""
    settings = json.loads(json.dumps(list(SETTINGS.values())))
    return judge_started(json.loads(json.dumps([function(*setting) for setting in settings])))


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (right, set()),
        (when_full, {"order"}),
        (one_at_a_time, {"late", "missing"}),
        (at_the_end, {"late"}),
        (at_the_first, {"early", "missing"}),
        (again, {"twice"}),
        (everything_last, {"early"}),
        (all_full_once_first_is, {"order"}),
        (by_number_of_arrivals, {"early"}),
        (by_the_last_of_a_bucket, {"early"}),
        (only_the_open_bucket, {"missing"}),
        (own_bucket_and_next, {"late"}),
        (lambda buckets, arrivals: [[buckets[n] for n in now] for now in right(buckets, arrivals)], {"form"}),
        (lambda buckets, arrivals: [buckets[n] for now in right(buckets, arrivals) for n in now], {"form", "early"}),
        (lambda buckets, arrivals: [now[:1] for now in right(buckets, arrivals)], {"missing"}),
        (lambda buckets, arrivals: [now[::-1] for now in right(buckets, arrivals)], {"order"}),
        (lambda buckets, arrivals: [[], *right(buckets, arrivals)[:-1]], {"late", "missing"}),
        (lambda buckets, arrivals: [[] for _ in arrivals], {"missing"}),
        (from_one, {"early", "order"}),
        (lambda buckets, arrivals: [[-1], *right(buckets, arrivals)[1:]], {"unknown"}),
        (lambda buckets, arrivals: right(buckets, arrivals)[1:], {"form"}),
        (lambda buckets, arrivals: [len(now) for now in right(buckets, arrivals)], {"form"}),
        (lambda buckets, arrivals: [["0"] for _ in arrivals], {"form"}),
        (lambda buckets, arrivals: [[True] for _ in arrivals], {"form"}),
        (lambda buckets, arrivals: None, {"form"}),
        (lambda buckets, arrivals: float("nan"), {"form"}),
    ],
)
def test_each_fault_by_its_kind(function, kinds):
    verdict = judged(function)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)


def test_faults_say_where_and_why():
    part = "with bucket 1 full before bucket 0, when gradient 0 arrives, bucket 1 is sent before bucket 0. Another"
    assert part in judged(when_full).faults["order"]
    (early,) = judged(everything_last).faults.values()
    assert early == (
        "for `started([[4], [3, 2], [1], [0]], [4, 2, 1, 0])`, with a weight that gets no gradient, when gradient 0 "
        "arrives, bucket 1 is sent without gradient 3"
    )
    assert "with gradients from the last to the first, when gradient 4" in judged(at_the_end).faults["late"]
    assert "bucket 1 is full and never sent" in judged(one_at_a_time).faults["missing"]
    assert "one per arrival" in judged(lambda *_: None).faults["form"]
