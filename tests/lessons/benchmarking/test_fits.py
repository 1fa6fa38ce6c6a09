"""Lab 06's plans know what a point needs: beside what a CPU counts and GPUs ran, and on GPUs that hold less."""

from types import SimpleNamespace

import pytest
import torch
from figures import checked
from fits import FREE_GB, show_gpu, size_taken, untried
from made_benchmarking import launches_run, profiles_run, steps_run

from labkit.engine.recordings import replay
from labkit.tables.published import published
from labkit.theory.sizes import MIB
from labkit.theory.transformer import NAMES
from labkit.worker.allocations import Meter
from lessons import benchmarking as lab
from lessons.benchmarking.plan import Clocks, Launches, Products, Profiles, Steps, Trial
from lessons.benchmarking.worker.steps import TrainingLoop

SWEPT = (Steps, Launches, Products, Clocks, Trial)  # of one size: what does not fit is left out of it


@pytest.mark.parametrize("precision", ["float32", "autocast"])
def test_a_forward_and_a_step_hold_what_the_ledger_says(precision):
    plan = Steps.small(device="cpu", gpus=1)
    worker = SimpleNamespace(plan=plan, device=torch.device("cpu"))
    point = SimpleNamespace(seed=0, precision=precision)
    dimensions = plan.dimensions("2.7b")
    with Meter(worker) as meter:
        loop = TrainingLoop(worker, point, dimensions)
        for work, phase in ((loop.forward, "forward"), (loop.step, "first step"), (loop.step, "steady step")):
            meter.reset()
            work()
            due = plan.phase_bytes(phase, precision, *dimensions)
            assert 0.95 * meter.peak_bytes() < due < 1.03 * meter.peak_bytes()


@pytest.mark.parametrize("name", ["launches", "profiles", "steps"])
def test_no_recorded_point_needs_more_than_its_gpu_has(name):
    run = replay(f"h100/benchmarking/{name}")
    assert (run.rows["status"] == "ok").all()
    needed = [run.plan.needed_bytes(point) for point in run.plan.points()]
    assert 0 < min(needed) <= max(needed) < run.node.gpus[0].memory_mib * MIB


def test_a_step_in_a_graph_needs_its_gradients_twice():
    plan = Steps.full(device="cuda")
    needed = {point.mode: plan.needed_bytes(point) for point in plan.points() if point.model == "2.7b"}
    weights = 4 * plan.shape("2.7b").parameters
    eager = plan.phase_bytes("steady step", "autocast", *plan.dimensions("2.7b"))
    assert needed["graph"] == needed["compiled_graph"] == pytest.approx(eager + weights, rel=0.001)
    assert needed["compiled"] == weights < needed["eager"] < eager


def test_three_matrices_of_a_product():
    plan = Products.full(device="cuda", gpus=1)
    assert [plan.needed_bytes(point) / 2**30 for point in plan.points()] == [0.75, 3, 1.5]


TAKEN = dict(zip(FREE_GB, ("full", "full", "xl", "large", "medium", "small"), strict=True))


@pytest.mark.parametrize("free_gb, name", [*TAKEN.items()])
def test_auto_takes_the_largest_size_that_fits(monkeypatch, free_gb, name):
    show_gpu(monkeypatch, free_gb)
    assert size_taken(Profiles, free_gb) == name
    plan = Profiles.sized("auto")
    assert plan.models[-1] == ("2.7b" if name == "full" else name)
    assert {setting.split()[0] for setting in plan.drawn} == {*plan.models}
    assert not untried(plan, free_gb)
    assert {size_taken(kind, free_gb) for kind in SWEPT} == {"full"}


@pytest.mark.parametrize("free_gb, models", [(79, ()), (39, ("xl", "2.7b")), (22, ("xl", "2.7b")), (7, NAMES[1:])])
def test_a_smaller_gpu_leaves_out_graphs_before_forwards(monkeypatch, free_gb, models):
    show_gpu(monkeypatch, free_gb)
    left_out = untried(Steps.sized("auto"), free_gb)
    assert {point.model for point in left_out if point.mode == "graph"} == {*models}
    assert {point.model for point in left_out if point.mode == "eager"} <= {*models}
    assert free_gb < 39 or "eager" not in {point.mode for point in left_out}


@pytest.mark.parametrize("free_gb, widths", [(79, ()), (39, (8192,)), (22, (6144, 8192)), (7, (4096, 6144, 8192))])
def test_a_smaller_gpu_ends_the_sweep_of_widths(monkeypatch, free_gb, widths):
    show_gpu(monkeypatch, free_gb)
    left_out = untried(Launches.sized("auto"), free_gb)
    assert {point.hidden for point in left_out if point.axis == "width"} == {*widths}
    assert {point.axis for point in left_out} <= {"width", "model"}


@pytest.mark.parametrize("name", Profiles.MIDDLE)
def test_a_middle_run_of_profiles_is_shown_as_a_full_one(tmp_path, name):
    here, recorded = (
        profiles_run(tmp_path / "run", size="middle", **Profiles.MIDDLE[name]),
        profiles_run(tmp_path / "f"),
    )
    figure = checked(lab.roofline_chart(lab.roofline(here), lab.roofline(recorded)))
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert [title.split(",")[1] for title in titles] == [f" middle size\n{name}", " full size\n2.7b"]
    checked(lab.families_chart(lab.families(here), lab.families(recorded)))
    checked(lab.timeline_chart(*lab.timelines(here), *lab.timelines(recorded)))
    assert lab.clocks_agree(lab.accounts(here), lab.accounts(recorded)).data
    assert lab.bytes_or_flop(lab.roofline(here), lab.roofline(recorded)).data
    assert lab.five_answers(here, recorded).data.count(f"40 calls, of `{name}`") == 1
    assert len(lab.timelines(here)) == 2 and "middle size" in here.source


@pytest.mark.parametrize("free_gb", [39, 22, 7])
def test_what_did_not_fit_is_missing_and_the_rest_is_shown(tmp_path, free_gb):
    here, recorded = steps_run(tmp_path / "steps", free_gb=free_gb), steps_run(tmp_path / "full")
    assert "does not fit" in {*here.rows["status"]}
    tables = [lab.steps(run) for run in (here, recorded)]
    checked(lab.phases_chart(*tables, published=published("transformer_steps")))
    checked(lab.modes_chart(*tables))
    checked(lab.iterations_chart(lab.iterations(here), lab.iterations(recorded)))
    assert lab.launches_or_fusion(lab.modes(here), lab.modes(recorded)).data
    swept, full = launches_run(tmp_path / "launches", free_gb=free_gb), launches_run(tmp_path / "swept")
    launches = [lab.launches(run) for run in (swept, full)]
    checked(lab.launches_chart(*launches))
    assert lab.launch_model(*launches).data
    profiled = profiles_run(tmp_path / "profiles")
    runs = {"steps": here, "launches": swept, "profiles": profiled}
    assert lab.in_one_minute(runs, {"steps": recorded, "launches": full, "profiles": profiled}).data
