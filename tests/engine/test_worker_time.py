"""Worker.time counts as the plan says, or as the call says."""

from types import SimpleNamespace

import pytest

from labkit.engine.worker import Worker


@pytest.mark.parametrize(
    ("counts", "warm_ups", "repeats"),
    [({}, 2, 3), ({"warm_ups": 0}, 0, 3), ({"repeats": 1}, 2, 1), ({"warm_ups": 1, "repeats": 4}, 1, 4)],
)
def test_a_count_that_a_call_does_not_give_is_the_plans(counts, warm_ups, repeats):
    worker = object.__new__(Worker)  # of no run: it has a plan, and drives no GPU
    worker.plan, worker.drives = SimpleNamespace(warm_ups=2, repeats=3), []
    before: list[str] = []
    timings = list(worker.time(lambda: len(before), before=lambda: before.append("ready"), **counts))
    assert [timing.warm_up for timing in timings] == [True] * warm_ups + [False] * repeats
    assert [timing.iteration for timing in timings] == list(range(warm_ups + repeats))
    assert [timing.result for timing in timings] == list(range(1, warm_ups + repeats + 1)), "before each iteration"
