"""Lab 10's plans know what a point needs: beside every recorded peak, and on GPUs that hold less."""

import pytest
from fits import FREE_GB, show_gpu, size_taken

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from labkit.theory.sizes import MIB
from lessons import ddp_from_scratch as lab
from lessons.ddp_from_scratch.plan import Buckets, Equality, Implementations, Profiles, Trial

WITH_PEAKS = ("h200x2/implementations", "h200x2/buckets", "h200x2/report_32", "h200x2/report_128")
WITH_PEAKS += ("h200x4/implementations", "h200x4/buckets")


@pytest.mark.parametrize("path", WITH_PEAKS)
def test_what_is_needed_is_the_recorded_peak(path):
    """Within 3 %; torch's DDP may have let its first buckets go before the peak."""
    machine, name = path.split("/")
    run = replay(f"{machine}/ddp_from_scratch/{name}")
    peaks = run.rows.groupby(["strategy", "bucket_mb"])["peak_mib"].max() * MIB
    for point in run.plan.points()[: len(peaks)]:
        needed, peak = run.plan.needed_bytes(point), peaks[point.strategy, point.bucket_mb]
        least = needed - 4 * run.plan.model.parameters if point.strategy == "ddp" else 0.997 * needed
        assert least < peak < 1.03 * needed, point


SIZES = {
    **dict.fromkeys((Implementations, Buckets, Profiles), ("full", "full", "large", "medium", "medium", "small")),
    **dict.fromkeys((Equality, Trial), ("full",) * 6),
}


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("number, free_gb", [*enumerate(FREE_GB)])
def test_auto_takes_the_largest_size_that_fits(monkeypatch, number, free_gb, gpus):
    show_gpu(monkeypatch, free_gb, gpus)
    assert {kind: size_taken(kind, free_gb) for kind in SIZES} == {kind: SIZES[kind][number] for kind in SIZES}


def test_a_larger_batch_takes_a_smaller_model(monkeypatch):
    show_gpu(monkeypatch, 14.5, 2)
    assert Implementations.sized("auto", samples=16).hidden == Implementations.MIDDLE["small"]["hidden"]


@pytest.mark.parametrize("name", ["implementations", "buckets"])
def test_another_model_has_no_goal(name):
    run = replay(f"h200x2/ddp_from_scratch/{name}")
    assert len(scorecard_of(run)) == 1
    run.plan._hold({"size": "middle"})
    assert scorecard_of(run).empty


def test_a_middle_run_is_named_so():
    run = replay("h200x2/ddp_from_scratch/implementations")
    run.plan._hold({"size": "middle"})
    figure = lab.steps_chart(lab.implementations(run))
    assert "middle size" in "".join(ax.get_title(loc=loc) for ax in figure.axes for loc in ("left", "center"))
