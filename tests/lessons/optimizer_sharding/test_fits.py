"""Lab 11's plans know what a point needs: beside every recorded peak, and on GPUs that hold less."""

import pytest
from fits import FREE_GB, show_gpu, size_taken

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from labkit.theory.sizes import MIB
from lessons import optimizer_sharding as lab
from lessons.optimizer_sharding.plan import ZERO, Equality, Exchanges, Memory, Steps, Trial


@pytest.mark.parametrize("machine", ["h200x2", "h200x4"])
def test_what_is_needed_is_the_recorded_peak(machine):
    run = replay(f"{machine}/optimizer_sharding/memory")
    peaks = run.rows.groupby("point")["peak_mib"].max() * MIB
    for point in run.plan.points():
        assert -0.03 < run.plan.needed_bytes(point) / peaks[point.point] - 1 < 0.003, point


def test_scattered_gradients_take_two_buckets_more_and_a_part():
    plan = Exchanges(gpus=2, device="cuda", ways=("sharded", ZERO))
    sharded, scattered = map(plan.needed_bytes, plan.points()[:2])
    assert scattered - sharded == pytest.approx(2.5 * plan.bucket_mib * MIB, rel=0.08)


SIZES = {
    Memory: ("full", "full", "large", "large", "medium", "small"),
    Steps: ("full", "full", "large", "large", "medium", "small"),
    Exchanges: ("full", "full", "full", "large", "large", "medium"),
    **dict.fromkeys((Equality, Trial), ("full",) * 6),
}


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("number, free_gb", [*enumerate(FREE_GB)])
def test_auto_takes_the_largest_size_that_fits(monkeypatch, number, free_gb, gpus):
    show_gpu(monkeypatch, free_gb, gpus)
    assert {kind: size_taken(kind, free_gb) for kind in SIZES} == {kind: SIZES[kind][number] for kind in SIZES}


@pytest.mark.parametrize(("name", "goals", "of_any_size"), [("steps", 6, 0), ("memory", 3, 1)])
def test_another_model_has_no_goal_but_that_of_the_ledger(name, goals, of_any_size):
    run = replay(f"h200x2/optimizer_sharding/{name}")
    assert len(scorecard_of(run)) == goals
    run.plan._hold({"size": "middle"})
    assert len(scorecard_of(run)) == of_any_size


def test_a_middle_run_is_named_so():
    run = replay("h200x2/optimizer_sharding/memory")
    run.plan._hold({"size": "middle"})
    titles = [ax.get_title(loc=loc) for ax in lab.memory_chart(lab.memory(run)).axes for loc in ("left", "center")]
    assert any("middle size" in title for title in titles)
