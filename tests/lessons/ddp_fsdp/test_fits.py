"""Lab 04's plans know what a point needs: beside every recorded peak, and on GPUs that hold less."""

import json
import shutil

import pytest
from fits import FREE_GB, show_gpu, size_taken

from labkit.engine.errors import PlanError
from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.repository import RECORDED
from labkit.tables.goals import scorecard_of
from labkit.theory.sizes import MIB
from lessons import ddp_fsdp as lab
from lessons.ddp_fsdp.plan import AsReported, Knobs, Layers, Strategies, Trial, Zero

WITH_PEAKS = ("h200x2/strategies", "h200x4/strategies", "h200x2/knobs", "h200x4/knobs", "h200x2/asreported")
WITH_PEAKS += tuple(f"h200x2/{stage}" for stage in ("zero1", "zero2", "zero3", "zero3_zero"))


@pytest.mark.parametrize("path", WITH_PEAKS)
def test_what_is_needed_is_the_recorded_peak(path):
    machine, name = path.split("/")
    run = replay(f"{machine}/ddp_fsdp/{name}")
    peaks = run.rows.groupby("point")["peak_mib"].max().dropna() * MIB
    points = {point.point: point for point in run.plan.points()}
    assert len(peaks) == len(points) / len(run.plan.seeds)
    for number, peak in peaks.items():
        assert -0.05 < run.plan.needed_bytes(points[number]) / peak - 1 < 0.03, points[number]


@pytest.mark.parametrize("path", ["h200x2/knobs", "h200x4/knobs"])
def test_autocast_keeps_what_the_formula_says(path):
    machine, name = path.split("/")
    run = replay(f"{machine}/ddp_fsdp/{name}")
    counted = run.rows[run.rows["compiled"] == False].groupby("point")["activations_mib"].max() * MIB  # noqa: E712
    for point in run.plan.points():
        if point.precision == "autocast" and not point.compiled:
            states = 16 * run.plan.model.parameters
            assert run.plan.needed_bytes(point) - states == pytest.approx(counted[point.point], rel=0.002)


def _size(batches):
    return f"batches of {batches[0]} and {batches[1]}"


SIZES = {
    **dict.fromkeys((Strategies, Knobs, Zero), ("full",) * 5 + (_size((16, 4)),)),
    AsReported: ("full", "full", "full", _size((48, 12)), _size((32, 8)), _size((8, 4))),
    **dict.fromkeys((Trial, Layers), ("full",) * 6),
}


@pytest.mark.parametrize("number, free_gb", [*enumerate(FREE_GB)])
def test_auto_takes_the_largest_size_that_fits(monkeypatch, number, free_gb):
    show_gpu(monkeypatch, free_gb, 2)
    assert {kind: size_taken(kind, free_gb) for kind in SIZES} == {kind: SIZES[kind][number] for kind in SIZES}


@pytest.mark.parametrize(
    "gpus, free_gb, batches", [(3, 14.5, (48, 12)), (3, 7, (15, 3)), (4, 7, (16, 4)), (8, 7, (48, 8)), (8, 1, (8,))]
)
def test_a_middle_size_has_batches_that_divide(monkeypatch, gpus, free_gb, batches):
    show_gpu(monkeypatch, free_gb, gpus)
    assert AsReported.sized("auto").batches == batches


def test_batches_that_were_asked_for_are_not_cut(monkeypatch):
    show_gpu(monkeypatch, 139, 4)
    with pytest.raises(PlanError, match="batch=30 does not divide"):
        Strategies.sized("auto", batches=(30,))


@pytest.fixture
def middle(tmp_path):
    """Gives a function that copies a recorded run on two GPUs as one of a middle size that was measured here."""

    def copied(name):
        run = Run(shutil.copytree(RECORDED / "h200x2/ddp_fsdp" / name, tmp_path / name))
        run.plan_file.write_text(json.dumps(json.loads(run.plan_file.read_text()) | {"size": "middle"}))
        return run

    return copied


def test_a_middle_run_is_beside_the_recorded_one_and_named_so(middle):
    run, recorded = middle("strategies"), replay("h200x2/ddp_fsdp/strategies")
    tables = lab.compared(run), lab.compared(recorded)
    charts = [
        lab.strategies_chart(*tables, published=lab.printed_runs()),
        lab.ledger_chart(lab.memory(run), lab.memory(recorded)),
    ]
    for figure in charts:
        titles = [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes[:2]]
        assert [("middle size" in title) for title in titles] == [True, False]
    assert "this run, middle size" in lab.costs(*tables, tables[1]).data


def test_a_middle_ladder_has_no_goal(middle):
    assert len(scorecard_of(replay("h200x2/ddp_fsdp/knobs"))) == 1
    assert scorecard_of(middle("knobs")).empty
