"""The check of a student's 1F1B and split: right and wrong answers, each fault by its kind."""

import json
from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.course.verdict import RIGHT, WRONG
from lessons import pipeline
from lessons.pipeline.exercises import SETTINGS, judge_schedule, judge_split, slowest, verdict_of
from lessons.pipeline.solutions import balanced_split as optimal
from lessons.pipeline.solutions import one_f_one_b as own


def given_to(name):
    return [json.loads(json.dumps(arguments)) for arguments in pipeline.check.by_name[name].inputs]


def results(name, function):
    """Return a function's results as they come back from a worker, through JSON."""
    return [json.loads(json.dumps(function(*case))) for case in given_to(name)]


def schedule_judged(function):
    return judge_schedule(results("one_f_one_b", function), given_to("one_f_one_b"))


def gpipe(rank, ranks, count):
    return [f"{kind}{i}" for kind in "FB" for i in range(count)]


def warmed(warm, *, limit=True):
    """Return a 1F1B that takes `warm(rank, ranks, count)` forwards ahead, by default no more than there are."""

    def schedule(rank, ranks, count):
        ahead = min(warm(rank, ranks, count), count) if limit else warm(rank, ranks, count)
        steps = [f"F{i}" for i in range(ahead)]
        for i in range(count - ahead):
            steps += [f"F{i + ahead}", f"B{i}"]
        return steps + [f"B{i}" for i in range(max(0, count - ahead), count)]

    return schedule


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (own, set()),
        (gpipe, {"memory"}),
        (lambda rank, ranks, count: own(rank, ranks, count)[:-1], {"incomplete"}),
        (lambda rank, ranks, count: own(rank, ranks, count)[::-1], {"deadlock"}),
        (lambda rank, ranks, count: [f"{k}{i}" for i in range(count) for k in "FB"], {"slow"}),
        (lambda rank, ranks, count: None, {"form"}),
        (lambda rank, ranks, count: float("nan"), {"form"}),
        (lambda rank, ranks, count: [0, "X1", "F"], {"form"}),
        (lambda rank, ranks, count: [*own(rank, ranks, count), None], {"form"}),
        (lambda rank, ranks, count: [*own(rank, ranks, count), "idle"], {"form"}),
        (lambda rank, ranks, count: [(name[0], int(name[1:])) for name in own(rank, ranks, count)], {"form"}),
        (lambda rank, ranks, count: [name.lower() for name in own(rank, ranks, count)], {"form"}),
        (lambda rank, ranks, count: " ".join(own(rank, ranks, count)), {"form"}),
        (lambda rank, ranks, count: ["F" + "9" * 5000], {"form"}),
        (warmed(lambda rank, ranks, count: ranks - rank - 1), set()),
        (warmed(lambda rank, ranks, count: ranks - rank - 1, limit=False), {"incomplete"}),
        (warmed(lambda rank, ranks, count: ranks - rank), {"memory"}),
        (warmed(lambda rank, ranks, count: ranks - 1), {"memory"}),
        (warmed(lambda rank, ranks, count: rank), {"memory", "slow", "deadlock"}),
        (warmed(lambda rank, ranks, count: max(0, ranks - rank - 2)), {"slow"}),
        (warmed(lambda rank, ranks, count: min(ranks - rank - 1, count // 2)), {"slow"}),
        (warmed(lambda rank, ranks, count: min(ranks - rank - 1, count - 1)), set()),  # the same order
        (lambda rank, ranks, count: own(rank, ranks, max(count, ranks)), {"incomplete"}),
        (
            lambda rank, ranks, count: own(rank, ranks, count) if count >= ranks else gpipe(rank, ranks, count)[1:],
            {"incomplete"},
        ),
        (lambda rank, ranks, count: [*own(rank, ranks, count), f"B{count - 1}"], {"incomplete"}),
        (lambda rank, ranks, count: [f"{n[0]}{int(n[1:]) + 1}" for n in own(rank, ranks, count)], {"incomplete"}),
    ],
)
def test_each_fault_by_its_kind(function, kinds):
    verdict = schedule_judged(function)
    assert set(verdict.faults) <= kinds and bool(verdict.faults) == bool(kinds), verdict
    assert len(kinds) > 1 or set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)
    assert bool(verdict.merits) == (not kinds)


def test_faults_of_schedules_say_what_to_change():
    unlimited = schedule_judged(warmed(lambda rank, ranks, count: ranks - rank - 1, limit=False))
    assert unlimited.faults["incomplete"] == (
        "with 4 ranks and 2 micro-batches, rank 0 goes forward for micro-batches [0, 1, 2], not for 0 to 1 once each: "
        "there is no micro-batch 2, and 2 micro-batches cannot make 3 forwards ahead"
    )
    small = schedule_judged(lambda rank, ranks, count: [name.lower() for name in own(rank, ranks, count)])
    assert "step 0 is 'f0', in lower case: give a list of names such as \"F0\"" in small.faults["form"]
    pairs = schedule_judged(lambda rank, ranks, count: [("F", 0)])
    assert "step 0 is ['F', 0]: give a list of names" in pairs.faults["form"]
    assert schedule_judged(lambda *_: None).faults["form"].endswith('such as "F0" or "B3": is a `return` missing?')


def test_the_labs_own_numbers_of_micro_batches_are_checked():
    for count in (1, 2):
        assert any(m == count and m < ranks for ranks, m in SETTINGS), "the lab's sweep uses them"


def cuts(layers, stages):
    """Yield every split."""
    for at in combinations(range(1, layers), stages - 1):
        yield [end - begin for begin, end in pairwise((0, *at, layers))]


def even(times, stages):
    least, more = divmod(len(times), stages)
    return [least + (stage < more) for stage in range(stages)]


def nearest(times, stages):
    """Cut where the sum is nearest to each multiple of the average."""
    sums, at = list(accumulate(times)), []
    for stage in range(1, stages):
        possible = range((at or [0])[-1] + 1, len(times) - (stages - stage) + 1)
        at.append(min(possible, key=lambda cut: abs(sums[cut - 1] - stage * sums[-1] / stages)))
    return [end - begin for begin, end in pairwise((0, *at, len(times)))]


def filled(times, stages, share=1.0, rule="before", left=False, back=False):
    """Fill stage after stage up to `share` of the average; `left`: of what is left; `back`: from the last layer on.

    Close a stage "before" it holds more, "after" it holds as much, or where it is "nearest".
    """
    times, sizes, at = times[::-1] if back else times, [], 0
    for stage in range(stages - 1):
        goal = share * (sum(times[at:]) / (stages - stage) if left else sum(times) / stages)
        held, number = times[at], 1
        while number < len(times) - at - (stages - stage - 1):
            ahead = {"before": held + times[at + number], "after": held, "nearest": held + times[at + number] / 2}
            if ahead[rule] > goal or (rule == "after" and held == goal):
                break
            held, number = held + times[at + number], number + 1
        sizes.append(number)
        at += number
    sizes.append(len(times) - at)
    return sizes[::-1] if back else sizes


def improved(sizes, times):
    """Move single layers between neighbouring stages while that makes the slowest stage faster."""
    while True:
        moves = [
            [size + (move if i == at else -move if i == at + 1 else 0) for i, size in enumerate(sizes)]
            for at in range(len(sizes) - 1)
            for move in (1, -1)
        ]
        best = min([sizes, *(sizes for sizes in moves if min(sizes) > 0)], key=lambda sizes: slowest(times, sizes))
        if best == sizes:
            return sizes
        sizes = best


def by_cap(times, stages, step=1):
    """Find the least cap by which `stages` stages are enough, in steps of `step`; stages left over stay empty."""
    cap = max(times)
    while True:
        sizes, held = [0], 0
        for time in times:
            if held + time > cap:
                sizes.append(0)
                held = 0
            sizes[-1] += 1
            held += time
        if len(sizes) <= stages:
            return sizes
        cap += step


def judged(function):
    return judge_split(results("balanced_split", function), given_to("balanced_split"))


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (optimal, set()),
        (even, {"balance"}),
        (nearest, {"balance"}),
        (filled, {"balance"}),
        (lambda times, stages: filled(times, stages, rule="after"), {"balance"}),
        (lambda times, stages: filled(times, stages, rule="nearest", left=True), {"balance"}),
        (lambda times, stages: improved(even(times, stages), times), {"balance"}),
        (lambda times, stages: improved(nearest(times, stages), times), {"balance"}),
        (lambda times, stages: improved(filled(times, stages), times), {"balance"}),
        (by_cap, {"sum", "balance"}),
        (lambda times, stages: optimal(times, stages)[::-1], {"balance"}),
        (lambda times, stages: optimal(list(map(int, times)), stages), {"balance"}),
        (lambda times, stages: [1] * stages, {"sum"}),
        (lambda times, stages: [len(times) / stages] * stages, {"form"}),
        (lambda times, stages: [size - 1 for size in accumulate(optimal(times, stages))], {"sum", "balance"}),
        (lambda times, stages: [True] * stages, {"form"}),
        (lambda times, stages: [[0]] * stages, {"form"}),
        (lambda times, stages: None, {"form"}),
    ],
)
def test_each_fault_of_a_split_by_its_kind(function, kinds):
    verdict = judged(function)
    assert set(verdict.faults) == kinds, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.2, 2.5), st.sampled_from(["before", "after", "nearest"]), st.booleans(), st.booleans())
def test_whatever_it_fills_to_greedy_is_told_from_optimal(share, rule, left, back):
    verdict = judged(lambda times, stages: filled(times, stages, share, rule, left, back))
    assert set(verdict.faults) == {"balance"}, (share, rule, left, back)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_every_optimal_split_is_right(data):
    def one_of_the_best(times, stages):
        least = slowest(times, optimal(times, stages))
        return data.draw(st.sampled_from([s for s in cuts(len(times), stages) if slowest(times, s) == least]))

    assert judged(one_of_the_best).outcome == RIGHT


@pytest.mark.parametrize("error", ["output_error", "loss_error", "gradient_error"])
def test_a_pipeline_whose_numbers_are_not_the_whole_models_is_wrong(error):
    """Whatever else is right about it."""
    row = {"variant": "it", "gradient_ratio": 1.0, "micro_batches": 4, "lost_parameters": 0, "clock_share": 1.0}
    row |= {"output_error": 1e-5, "loss_error": float("nan"), "gradient_error": 1e-5}
    assert verdict_of(row).outcome == RIGHT
    assert verdict_of(row | {error: 0.5}).outcome == WRONG
