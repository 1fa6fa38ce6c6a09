"""Every notebook with every number of GPUs: its plans are made and told the parameters, or one sentence refuses."""

import ast
import contextlib
import dataclasses
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import nbformat
import papermill
import pytest
from notebook_rules import called, code, is_answer, tags

import labkit.parameters
from labkit import check_parameters, node
from labkit.batch.execute import ThisInterpreter
from labkit.engine.errors import NotEnoughGpus, ParameterError, PlanError
from labkit.launching import launch
from labkit.repository import RECORDED
from lessons import (
    accounting,
    attention,
    beyond_the_node,
    broadcast,
    one_gpu,
    pipeline,
    precision_memory,
    sharding,
    start,
)

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
TWO_OR_MORE = {
    "02_broadcast",
    "03_pipeline",
    "04_ddp_fsdp",
    "05_sharding",
    "09_collectives",
    "10_ddp_from_scratch",
    "11_optimizer_sharding",
    "14_beyond_the_node",
    "15_fsdp_from_scratch",
    "16_tensor_parallel",
}
WITHOUT_LAUNCH = "12_accounting"


@pytest.fixture
def machine(monkeypatch):
    """Return a function that makes the node show so many GPUs."""

    def shows(gpus: int) -> None:
        shown = tuple(node.Gpu(index, "NVIDIA H200", memory_mib=143_771) for index in range(gpus))
        here = dataclasses.replace(node.here(), gpus=shown)
        monkeypatch.setattr(node, "here", lambda: here)

    return shows


@cache
def trees(path):
    """Return the code cells that Python itself can read, each with its tree."""
    cells = [cell for cell in code(nbformat.read(path, as_version=4)) if not is_answer(cell)]
    return [(cell, ast.parse(cell.source)) for cell in cells]


@cache
def plan_calls(tree):
    """Return the calls that make a plan of a size: `lab.Sweep.sized(...)`."""
    return [call for call in ast.walk(tree) if isinstance(call, ast.Call) and called(call) == "sized"]


def names_in(*nodes):
    return {name.id for node in nodes for name in ast.walk(node) if isinstance(name, ast.Name)}


def plans_of(path, **parameters):
    """Runs a notebook's parameters and set-up, then makes its plans and assigns what they need; nothing is launched.

    Gives each plan with the source of the call that made it.
    """
    names, made = {}, []
    for cell, _tree in trees(path):
        if "check_parameters(" in cell.source or "parameters" in tags(cell):
            exec(cell.source, names)
            names |= parameters if "parameters" in tags(cell) else {}
    statements = [statement for _cell, tree in trees(path) for statement in tree.body]
    needed = names_in(*(call for statement in statements for call in plan_calls(statement)))
    for statement in reversed(statements):
        if isinstance(statement, ast.Assign) and names_in(*statement.targets) & needed:
            needed |= names_in(statement.value)
    for statement in statements:
        for call in plan_calls(statement):
            made.append((eval(ast.unparse(call), names), ast.unparse(call)))
        if isinstance(statement, ast.Assign) and names_in(*statement.targets) & needed - {*names}:
            exec(ast.unparse(statement), names)
    return made


@every_notebook
def test_every_plan_of_a_notebook_is_told_gpus_and_seeds(path):
    for _cell, tree in trees(path):
        for call in plan_calls(tree):
            assert {"gpus", "seeds"} <= {keyword.arg for keyword in call.keywords}, ast.unparse(call)


@every_notebook
def test_whatever_else_launches_at_a_size_is_told_gpus(path):
    for cell, tree in trees(path):
        calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call)]
        told = [{keyword.arg for keyword in call.keywords} for call in calls]
        assert all("gpus" in names for names in told if "size" in names), cell.source


def test_the_check_of_a_broadcast_launches_with_as_many_gpus_as_it_is_told(machine):
    machine(0)
    with pytest.raises(NotEnoughGpus, match="gpus=9"):
        broadcast.check_function("early_forward", size="small", gpus=9)


@every_notebook
@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
@pytest.mark.parametrize("seeds", [1, 2])
def test_the_plans_are_made_or_one_sentence_refuses(machine, path, gpus, seeds):
    machine(0)
    if gpus == 1 and path.stem in TWO_OR_MORE:
        with pytest.raises(ParameterError, match=r"^gpus=1: .* needs at least 2 workers; take gpus=2 or more[^\n]*$"):
            plans_of(path, size="small", gpus=gpus, seeds=seeds)
        return
    plans = plans_of(path, size="small", gpus=gpus, seeds=seeds)
    assert plans or path.stem == WITHOUT_LAUNCH
    for plan, call in plans:
        assert plan.points()
        assert (plan.size, plan.device) == ("small", "cpu")
        if "gpus=gpus" in call:
            assert plan.gpus == min(gpus, plan.most or gpus), call
        if "seeds=seeds" in call:
            assert plan.seeds == tuple(range(seeds)), call


@every_notebook
@pytest.mark.parametrize("shown", [0, 1, 2, 3, 4, 8])
def test_no_notebook_starts_what_it_cannot_finish(machine, path, shown):
    """On any node, with any parameters: whatever a plan refuses is refused in the set-up cell already."""
    machine(shown)
    for size in ("auto", "small", "full"):
        for gpus in (0, 1, 2, 3, 4, 8, 9):
            with contextlib.suppress(ParameterError):
                for plan, call in plans_of(path, size=size, gpus=gpus, seeds=0):
                    on_request = "device=" in call
                    assert on_request or plan.size != "full" or plan.device == "cuda", call


@every_notebook
def test_at_recorded_every_launch_of_a_notebook_has_its_recorded_run(machine, path):
    machine(0)
    for plan, call in plans_of(path, size="recorded", gpus=0, seeds=0):
        assert plan.recording, call
        assert launch(plan).folder == RECORDED / plan.recording


def test_a_recorded_page_says_so_and_names_the_machines():
    assert told(pipeline, size="recorded").startswith("Nothing is launched: recorded runs stand for every launch")
    assert "from 4 × NVIDIA H200 (2026-11-21) and 2 × NVIDIA H200 (2026-11-29)." in told(pipeline, size="recorded")
    assert told(beyond_the_node, size="recorded").endswith(", small size.")
    assert "launches nothing" in told(accounting, size="recorded")


def test_a_plan_that_nobody_recorded_is_refused_with_its_knobs():
    with pytest.raises(PlanError, match=r"no run of broadcast.Trial with functions=\('mine',\) is recorded"):
        broadcast.Trial.sized("recorded", functions=("mine",))


def test_on_a_recorded_page_an_answer_that_was_given_still_finds_the_recorded_run(tmp_path):
    plan = pipeline.Schedules.sized("recorded", yours=str(tmp_path / "pipeline_one_f_one_b.py"))
    assert (plan.recording, plan.yours) == ("h200x4/pipeline/schedules", "")


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"size": "recorded", "gpus": 2}, "size='recorded' shows runs as they were measured: leave gpus and seeds out"),
        ({"size": "recorded", "seeds": 2}, "size='recorded' shows runs as they were measured: leave gpus and seeds"),
        ({"gpus": "four"}, "gpus='four': give a number of worker processes, such as 2, or 0 for all GPUs"),
        ({"gpus": -1}, "gpus=-1: give a number"),
        ({"gpus": 2.0}, "gpus=2.0: give a number"),
        ({"gpus": True}, "gpus=True: give a number"),
        ({"gpus": 9}, "gpus=9: this node has no GPU; up to 8 processes stand in for GPUs"),
        ({"seeds": -1}, "seeds=-1: give a number of repetitions, 1 to 1000, or 0 for each plan's own"),
        ({"seeds": "two"}, "seeds='two': give a number"),
        ({"seeds": 10**9}, "seeds=1000000000: give a number"),
        ({"seeds": ()}, "seeds=(): give a number"),
        ({"seeds": ("a",)}, "seeds=('a',): a plan needs at least one seed"),
        ({"seeds": [10**30]}, f"seeds=({10**30},): give seeds from 0 to 4294967295, such as (0, 1, 2)"),
        ({"seeds": [0, -1]}, "seeds=(0, -1): give seeds from 0 to 4294967295, such as (0, 1, 2)"),
        ({"seeds": [0, 0]}, "seeds=(0, 0): a seed comes twice, and its points cannot be told apart: give each once"),
        ({"size": "huge"}, "size='huge' is not known; it is one of auto, small, full, recorded"),
        ({"size": 1}, "size=1 is not known"),
    ],
)
def test_a_wrong_value_says_what_is_allowed(machine, wrong, words):
    machine(0)
    with pytest.raises(ParameterError) as caught:
        check_parameters(broadcast, **{"size": "small", "gpus": 0, "seeds": 0} | wrong)
    assert words in str(caught.value)
    assert caught.value._render_traceback_() == [f"ParameterError: {caught.value}"]


@pytest.mark.parametrize("lab", [start, broadcast, sharding, attention], ids=lambda lab: lab.__name__)
def test_full_without_gpus_is_refused_with_the_reason(machine, lab, monkeypatch):
    machine(0)
    monkeypatch.setattr(node, "why_no_gpu_is_visible", lambda: "no GPU is visible here (NVML says: Driver Not Loaded)")
    with pytest.raises(ParameterError) as caught:
        check_parameters(lab, size="full", gpus=0, seeds=0)
    assert "size='full' needs" in str(caught.value)
    assert "no GPU is visible here (NVML says: Driver Not Loaded): take size='small', or replay()" in str(caught.value)


@pytest.mark.parametrize("make", [sharding.Strategies.full, broadcast.Sweep.full, attention.Plain.full])
def test_a_full_plan_is_not_made_where_it_would_run_on_cpu_processes(machine, make):
    machine(0)
    with pytest.raises(PlanError, match=r"size='full' needs .*GPU"):
        make()


def test_full_on_too_few_gpus_says_how_many_there_are(machine):
    machine(1)
    with pytest.raises(PlanError, match=r"needs at least 2 GPUs, and 1 GPU\(s\) are visible here"):
        sharding.Strategies.sized("full")


def test_full_on_gpus_that_may_not_be_used_says_how_many_may(machine, monkeypatch):
    machine(4)
    monkeypatch.setenv("LABKIT_MAX_GPUS", "1")
    with pytest.raises(
        PlanError, match=r"at least 2 GPUs, and 4 GPU\(s\) are visible here, of which a launch may use 1:"
    ):
        sharding.Strategies.sized("full")


def told(lab, **parameters) -> str:
    return check_parameters(lab, **{"size": "auto", "gpus": 0, "seeds": 0} | parameters).data


def test_a_lesson_over_nodes_runs_small_at_any_size_where_gpus_have_no_cluster(machine, monkeypatch):
    """So that one command runs the whole workbook at full size on a node."""
    monkeypatch.setattr(labkit.parameters, "why_replayed", lambda: "")
    for name in ("LABKIT_CLUSTER", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    machine(2)
    assert "size **small**, **2 CPU processes on each node**. `size='full'` changes" in told(
        beyond_the_node, size="full"
    )
    assert "changes nothing" not in told(beyond_the_node) + told(broadcast, size="full")
    machine(1)
    with pytest.raises(ParameterError, match=r"needs at least 2 GPUs, and 1 GPU\(s\) are visible here"):
        told(beyond_the_node, size="full")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    machine(2)
    assert "size **full**, **2 GPUs on each node**" in told(beyond_the_node, size="full")


def test_the_check_says_what_will_run(machine):
    machine(4)
    assert "size **full**, **4 GPUs**" in told(broadcast)
    assert "no GPU is visible" not in told(broadcast)
    machine(0)
    assert "size **small**, **3 CPU processes**" in told(broadcast, gpus=3)
    assert "no GPU is visible here (NVML" in told(broadcast, gpus=3)
    assert "Seeds per timed point: 3." in told(broadcast, seeds=3)
    assert "`Links`, `Strategies` use 2 of 3 workers" in told(sharding, gpus=3)
    assert "`gpus=3` changes nothing: this lesson uses 1 worker(s)" in told(attention, gpus=3)
    assert "changes nothing" not in told(attention)
    assert "launches nothing" in told(accounting, gpus=3)


def test_a_lesson_over_nodes_says_so_or_why_recorded_runs_stand_in(machine, monkeypatch):
    machine(0)
    monkeypatch.setattr(labkit.parameters, "why_replayed", lambda: "")
    assert "**2 CPU processes on each node**" in told(beyond_the_node)
    monkeypatch.setattr(labkit.parameters, "why_replayed", lambda: "only root may make them")
    assert told(beyond_the_node) == "Recorded runs stand in for every launch of this lesson: only root may make them."


def test_on_a_node_with_one_gpu_each_plan_says_where_it_runs(machine):
    machine(1)
    assert "`Timeline`: size **full**, **1 GPU**." in told(sharding)
    assert "Every launch of this lesson: size **full**, **1 GPU**." in told(one_gpu)
    assert "size **small**, **2 CPU processes**." in told(sharding)


def test_what_papermill_sets_is_known_or_told(machine, monkeypatch):
    def cells(*sources):
        shell = SimpleNamespace(user_ns={"In": ["", *sources]})
        monkeypatch.setattr(labkit.parameters, "get_ipython", lambda: shell)

    machine(0)
    cells("gpus = 0", "# Parameters\ngpus = 2\nseeds = 1\n", "mine = 3")
    assert told(broadcast)
    cells("gpus = 0", "# Parameters\ngpu = 2\nsize = 'small'\n")
    with pytest.raises(ParameterError, match=r"^gpu: no notebook has a parameter of this name; there are size,"):
        told(broadcast)


@pytest.mark.parametrize("parameters, words", [({"gpu": 4}, "gpu: no notebook has"), ({"gpus": "four"}, "gpus='four'")])
def test_papermill_itself_ends_with_one_sentence_before_anything_is_launched(tmp_path, parameters, words):
    (path,) = [path for path in NOTEBOOKS if path.stem == "05_sharding"]
    with pytest.raises(papermill.PapermillExecutionError) as caught:
        papermill.execute_notebook(
            path,
            tmp_path / "ran.ipynb",
            parameters=parameters,
            cwd=path.parent,
            progress_bar=False,
            language="python",
            kernel_name="python3",
            kernel_manager_class=ThisInterpreter,
        )
    assert caught.value.ename == "ParameterError"
    assert words in caught.value.evalue
    ran = [cell for cell in nbformat.read(tmp_path / "ran.ipynb", as_version=4).cells if cell.get("execution_count")]
    assert len(ran) == 3  # the parameters, papermill's, and the set-up


def test_the_check_says_what_was_left_out_and_what_the_gpus_lack(machine, monkeypatch):
    machine(2)
    monkeypatch.setattr(node, "free_bytes", lambda gpus: 22e9)
    assert re.search(
        r"`Memory`: full size needs 5\d\.\d GB, and a GPU has 22\.0 GB free: large instead\.", told(precision_memory)
    )
    assert "no peer access" not in told(broadcast)
    monkeypatch.setattr(node, "pairs_without_peer_access", lambda gpus: [(0, 1)] if len(gpus) == 2 else [])
    assert "gives GPUs 0 and 1 no peer access: what one sends the other goes through the host's memory" in told(
        broadcast
    )
    assert "no peer access" not in told(precision_memory), "one GPU sends nothing"


def test_the_check_says_how_many_points_the_gpus_cannot_run(machine, monkeypatch):
    machine(1)
    assert "not tried" not in told(attention)
    monkeypatch.setattr(node, "free_bytes", lambda gpus: 7e9)
    plans = [kind.sized() for kind in (attention.Memory, attention.Race)]
    memory, race = (sum(plan.needed_bytes(point) > 6.35e9 for point in plan.points()) for plan in plans)
    assert memory and race
    assert re.search(
        rf"because they do not fit in 7\.0 GB: .*{memory} of `Memory`, .*{race} of `Race`", told(attention)
    )
    turing = dataclasses.replace(node.here().gpus[0], compute_capability="7.5")
    here = dataclasses.replace(node.here(), gpus=(turing,))
    monkeypatch.setattr(node, "here", lambda: here)
    assert re.search(r"because they need a newer GPU: .* of `Race`", told(attention))
    assert "has matrix units for float16 alone" in told(attention)
