"""Lab 07's plans know what a point needs: beside every recorded peak, and on GPUs that hold less."""

import json
import shutil

import pytest
from figures import checked
from fits import FREE_GB, show_gpu, size_taken, untried

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.theory.sizes import MIB
from labkit.theory.step_memory import ledger
from lessons import precision_memory as lab
from lessons.precision_memory.plan import Hidden, Levers, Memory, Numbers, Scaling, Timeline, Trial
from lessons.precision_memory.theory.memory import least_peak, lever_peak, shape_of

RUNS = ("h100", "h200")


@pytest.fixture(params=RUNS)
def run(request):
    """Gives a function from a plan's name to its recorded run on a kind of GPU."""
    return lambda name: replay(f"{request.param}/precision_memory/{name}")


def test_a_context_needs_its_recorded_peak_or_that_of_its_first_phase(run):
    weighed = run("memory")
    plan, peaks = weighed.plan, weighed.entries("memory").set_index(["point", "phase"])["peak_mib"] * MIB
    for point in plan.points():
        due = peaks[point.point].max() if point.sequence == 128 else peaks[point.point, "no_grad"]
        assert plan.must_fit(point) == (point.sequence == 128)
        assert 0.98 * due < plan.needed_bytes(point) < 1.02 * due


def test_what_ran_out_of_memory_has_a_ledger_that_says_so():
    run = replay("h100/precision_memory/memory")
    failed = run.rows[run.rows["status"] == "out of memory"]
    assert len(failed) == 2
    for row in failed.itertuples():
        shape = shape_of(run.plan, sequence=int(row.sequence), precision=row.precision)
        assert sum(ledger(shape, "steady step").values()) > run.node.gpus[0].memory_mib * MIB


def test_a_timeline_needs_its_recorded_peak(run):
    timeline = run("timeline")
    peaks = timeline.entries("memory timeline").groupby("precision")["allocated_mib"].max() * MIB
    for point in timeline.plan.points():
        assert timeline.plan.needed_bytes(point) == pytest.approx(peaks[point.precision], rel=0.01)


def test_a_lever_needs_its_recorded_peak_or_little_less(run):
    pulled = run("levers")
    plan, peaks = pulled.plan, pulled.entries("memory").set_index("lever")["peak_mib"] * MIB
    for point in plan.points():
        assert 0.93 < plan.needed_bytes(point) / peaks[point.lever] < 1.003, point.lever
    assert [point.lever for point in plan.points() if plan.must_fit(point)] == ["plain"]


@pytest.mark.parametrize("lever", ["plain", "checkpoint every block", "checkpoint every 4th block"])
def test_where_a_lever_has_a_formula_both_agree(lever):
    shape = shape_of(replay("h200/precision_memory/levers").plan, precision="bfloat16")
    assert least_peak(shape, lever) == lever_peak(shape, lever)


SIZES = {
    Memory: ("full", "full", "xl", "large", "medium", "small"),
    Timeline: ("full", "full", "large", "medium", "medium", "small"),
    Levers: ("full", "full", "large", "medium", "medium", "small"),
    **dict.fromkeys((Numbers, Scaling, Hidden, Trial), ("full",) * 6),
}


@pytest.mark.parametrize("number, free_gb", [*enumerate(FREE_GB)])
def test_auto_takes_the_largest_size_that_fits(monkeypatch, number, free_gb):
    show_gpu(monkeypatch, free_gb)
    assert {kind: size_taken(kind, free_gb) for kind in SIZES} == {kind: SIZES[kind][number] for kind in SIZES}


@pytest.mark.parametrize("free_gb, levers", [(139, []), (79, ["gradients set to zero"]), (39, []), (7, [])])
def test_levers_beyond_the_plain_step_are_left_out(monkeypatch, free_gb, levers):
    show_gpu(monkeypatch, free_gb)
    assert [point.lever for point in untried(Levers.sized("auto"), free_gb)] == levers


@pytest.fixture
def middle(tmp_path):
    """Gives a function that writes a recorded run as one of a middle size, some of whose points did not fit."""

    def written(name, points=(), **knobs):
        source, folder = replay(f"h200/precision_memory/{name}"), tmp_path / name
        shutil.copytree(source.folder, folder)
        run = Run(folder)
        run.plan_file.write_text(json.dumps(json.loads(source.plan.to_json()) | {"size": "middle"} | knobs))
        rows = [json.loads(line) for line in run.rows_file(0).read_text().splitlines()]
        left_out = [
            vars(point) | {"rank": 0, "status": "does not fit", "warm_up": False} for point in run.plan.points()
        ]
        kept = [row for row in rows if row["point"] not in points]
        kept += [row for row in left_out if row["point"] in points]
        run.rows_file(0).write_text("".join(f"{json.dumps(row)}\n" for row in kept))
        return run

    return written


def test_a_middle_run_has_panels_of_its_own_and_names_what_did_not_fit(middle):
    recorded = lab.memory(replay("h200/precision_memory/memory"))
    table = lab.memory(middle("memory", points=(3, 7), **Memory.MIDDLE["xl"]))
    figure = checked(lab.ledger_chart(table, recorded))
    assert len(figure.axes) == 4
    assert [[text.get_text() for text in ax.texts] for ax in figure.axes[:2]] == [["does not fit"]] * 2
    assert figure.axes[0].get_title(loc="left").startswith("Here, middle size")
    assert lab.ledger_explains(table, recorded).data


def test_a_middle_run_of_levers_is_compared_with_its_own_plain_step(middle):
    run, recorded = middle("levers", points=(2,), **Levers.MIDDLE["large"]), replay("h200/precision_memory/levers")
    tables = [lab.levers(run), lab.levers(recorded)]
    assert tables[0].set_index("lever")["status"]["gradients set to zero"] == "does not fit"
    checked(lab.levers_chart(*tables))
    assert lab.leanest(*tables).data
