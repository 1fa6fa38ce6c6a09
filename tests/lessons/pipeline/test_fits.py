"""Lab 03's plans know what a point needs: beside every recorded peak, and on GPUs that hold less."""

import pytest
from fits import FREE_GB, show_gpu, size_taken

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from labkit.theory.sizes import MIB
from lessons import pipeline as lab
from lessons.pipeline.plan import AsReported, Gpus, MicroBatches, Schedules, Splits, Trial

WITH_PEAKS = ("h200x2/asreported", "h200x2/kept", "h200x2/microbatches2")
WITH_PEAKS += ("h200x4/gpus", "h200x4/microbatches", "h200x4/schedules", "h200x4/splits")


@pytest.mark.parametrize("path", WITH_PEAKS)
def test_what_is_needed_is_the_recorded_peak(path):
    """Within 10 %; of a stage that only runs forward, which holds little, within 80 MiB."""
    machine, name = path.split("/")
    run = replay(f"{machine}/pipeline/{name}")
    peaks = run.rows.groupby("point")["peak_mib"].max() * MIB
    for point in run.plan.points():
        if point.seed == run.plan.seeds[0]:
            needed, peak = run.plan.needed_bytes(point), peaks[point.point]
            below = 0.1 * peak if point.mode in ("training", "kept") else max(0.1 * peak, 80 * MIB)
            assert peak - below < needed < 1.03 * peak, point


def _sizes(*batches):
    return tuple("full" if batch == 64 else f"a batch of {batch}" for batch in batches)


SIZES = {
    **dict.fromkeys((Gpus, MicroBatches, Schedules), _sizes(64, 64, 64, 64, 64, 32)),
    Splits: _sizes(64, 64, 64, 64, 48, 16),
    AsReported: _sizes(64, 64, 64, 48, 32, 8),
    Trial: _sizes(64, 64, 64, 48, 32, 16),
}


@pytest.mark.parametrize("number, free_gb", [*enumerate(FREE_GB)])
def test_auto_takes_the_largest_size_that_fits(monkeypatch, number, free_gb):
    show_gpu(monkeypatch, free_gb, 2)
    assert {kind: size_taken(kind, free_gb) for kind in SIZES} == {kind: SIZES[kind][number] for kind in SIZES}


@pytest.mark.parametrize("gpus", [3, 4, 6, 8])
@pytest.mark.parametrize("free_gb", FREE_GB)
def test_some_size_fits_however_many_gpus_there_are(monkeypatch, free_gb, gpus):
    show_gpu(monkeypatch, free_gb, gpus)
    assert all(size_taken(kind, free_gb) for kind in SIZES)


def test_a_smaller_batch_has_no_more_micro_batches_than_samples(monkeypatch):
    show_gpu(monkeypatch, 7, 2)
    plan = MicroBatches.sized("auto")
    assert (plan.batch, plan.counts) == (32, (1, 2, 4, 8, 16, 32))


def test_a_middle_run_is_named_so_and_has_no_goal():
    run = replay("h200x2/pipeline/microbatches2")
    run.plan._hold({"ranks": 0})
    assert len(scorecard_of(run)) == 2
    run.plan._hold({"size": "middle"})
    table = lab.throughput(run)
    titles = [ax.get_title(loc=loc) for ax in lab.micro_batch_curve(table, table).axes for loc in ("left", "center")]
    assert any("middle size" in title for title in titles)
    assert scorecard_of(run).empty
