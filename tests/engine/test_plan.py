"""Plans: frozen, checked where they are made, and the same again from their JSON."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from labkit import node
from labkit.engine.call import Call
from labkit.engine.errors import NotEnoughGpus, PlanError
from labkit.engine.plan import MOST_CPU_PROCESSES, Plan
from labkit.repository import lesson_names
from lessons import ddp_fsdp
from lessons.broadcast.plan import METHODS, Sweep, Trial
from lessons.start.plan import Failure, Hello


@dataclass(frozen=True, kw_only=True)
class Colours(Plan):
    """A plan with one list, and a lab of its own."""

    lab: ClassVar[str] = "colours"
    worker: ClassVar[str] = "nowhere"

    colours: tuple[str, ...] = ("red", "green")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for colour in self.colours:
            yield {"colour": colour}


@pytest.fixture
def machine(monkeypatch):
    """Return a function that makes the node show so many GPUs."""

    def shows(gpus: int) -> None:
        here = dataclasses.replace(node.here(), gpus=tuple(node.Gpu(index, "NVIDIA H200") for index in range(gpus)))
        monkeypatch.setattr(node, "here", lambda: here)

    return shows


def test_lists_become_tuples_and_a_plan_is_frozen():
    plan = Colours(colours=["red"], seeds=[3, 4])
    assert (plan.colours, plan.seeds) == (("red",), (3, 4))
    assert hash(plan) == hash(Colours(colours=("red",), seeds=(3, 4)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.gpus = 3


def test_seeds_vary_slowest():
    points = Colours(seeds=(5, 7)).points()
    assert [point.point for point in points] == [0, 1, 2, 3]
    assert [(point.seed, point.colour) for point in points] == [(5, "red"), (5, "green"), (7, "red"), (7, "green")]
    assert [vars(point) for point in Hello(gpus=2).points()] == [{"point": 0, "seed": 0}], "without knobs"


@pytest.mark.parametrize("gpus, device, workers", [(0, "cpu", 2), (4, "cuda", 4)])
def test_the_machine_settles_device_and_count(machine, gpus, device, workers):
    machine(gpus)
    assert (Colours().device, Colours().gpus) == (device, workers)
    assert Colours(gpus=3).gpus == 3


@pytest.mark.parametrize("plan", [ddp_fsdp.Strategies, Sweep])
@pytest.mark.parametrize("shown, allowed", [(8, 3), (3, 2), (7, 2)])
def test_a_full_plan_divides_among_the_gpus_that_a_course_allows(machine, monkeypatch, plan, shown, allowed):
    machine(shown)
    monkeypatch.setenv("LABKIT_MAX_GPUS", str(allowed))
    assert plan.full().gpus == allowed


def test_more_gpus_than_the_node_shows(machine):
    machine(4)
    with pytest.raises(NotEnoughGpus, match=r"gpus=5: this node shows 4 GPU\(s\), so 1 to 4"):
        Colours(gpus=5)


# Beyond the node, workers are processes of two network namespaces, wherever they run.
LABS = [importlib.import_module(f"lessons.{name}") for name in lesson_names() if name != "beyond_the_node"]
EVERY_PLAN = [kind for lab in LABS for kind in vars(lab).values() if isinstance(kind, type) and issubclass(kind, Plan)]


@pytest.mark.parametrize("gpus", [0, 1, 2, 3, 4, 6, 8])
def test_every_plan_fits_every_machine(machine, gpus):
    machine(gpus)
    for kind in EVERY_PLAN:
        for size in ("auto", "small"):
            plan = kind.sized(size)
            assert plan.points(), kind
            assert (plan.device == "cuda") == (gpus >= kind.least), kind
            assert plan.gpus <= max(gpus, 4 if plan.device == "cpu" else 1), kind
        assert kind.sized("auto").size == ("full" if gpus >= kind.least else "small"), kind


@dataclass(frozen=True, kw_only=True)
class Sides(Plan):
    """Squares of 8 GB a thousand of side, of which the last need not fit."""

    lab: ClassVar[str] = "sides"
    worker: ClassVar[str] = "sides_worker"
    FULL: ClassVar[dict] = {"sides": (1000, 9000)}
    MIDDLE: ClassVar[dict] = {"half": {"side": 500, "sides": (500, 9000)}, "a tenth": {"sides": (100, 1000)}}

    side: int = 1000
    sides: tuple[int, ...] = (10,)

    def knobs(self):
        yield from ({"side": side} for side in self.sides)

    def needed_bytes(self, point):
        return 8e9 * point.side / 1000

    def must_fit(self, point):
        return point.side == self.sides[0]


@pytest.mark.parametrize(
    "free_gb, size, sides, why",
    [
        (10, "full", (1000, 9000), ""),
        (8.1, "middle", (500, 9000), "full size needs 8.0 GB, and a GPU has 8.1 GB free: half instead"),
        (3, "middle", (100, 1000), "full size needs 8.0 GB, and a GPU has 3.0 GB free: a tenth instead"),
        (0.1, "middle", (100, 1000), "full size needs 8.0 GB, and a GPU has 0.1 GB free: a tenth instead"),
        (None, "full", (1000, 9000), ""),
    ],
)
def test_auto_takes_the_largest_size_that_fits_the_free_memory(machine, monkeypatch, free_gb, size, sides, why):
    machine(2)
    monkeypatch.setattr(node, "free_bytes", lambda gpus: free_gb and free_gb * 1e9 if len(gpus) == 2 else 1)
    plan = Sides.sized("auto")
    assert (plan.size, plan.sides, plan.left_out) == (size, sides, why)
    assert Plan.from_json(plan.to_json()) == plan
    assert Sides.sized("full").sides == (1000, 9000), "full is full, and rows say what does not fit"
    assert Sides.sized("small").sides == (10,)


def test_a_call_is_read_back():
    plan = Call(gpus=1, file="answers/lab_f.py", function="f", inputs="[[1, 2], [3]]")
    assert Plan.from_json(plan.to_json()) == plan
    assert [point.arguments for point in plan.points()] == [[1, 2], [3]]


def test_a_plan_for_two_gpus_runs_on_the_cpu_of_a_node_with_one(machine):
    machine(1)
    assert (Failure().device, Failure().gpus) == ("cpu", 2)
    assert Sweep.sized().memories == ("pageable",)
    with pytest.raises(NotEnoughGpus, match=r"this node has 1 GPU\(s\), and this plan needs 2; up to 8 processes"):
        Failure(gpus=9)


def test_processes_stand_in_for_a_few_gpus_only(machine):
    machine(0)
    assert Colours(gpus=MOST_CPU_PROCESSES).device == "cpu"
    with pytest.raises(NotEnoughGpus, match=f"this node has no GPU; up to {MOST_CPU_PROCESSES} processes"):
        Colours(gpus=MOST_CPU_PROCESSES + 1)


@pytest.mark.parametrize(
    "knobs, words",
    [
        ({"device": "tpu"}, "device='tpu' is not known; it is one of cuda, cpu"),
        ({"gpus": -1}, "gpus=-1: a run needs at least one worker"),
        ({"device": "cpu", "gpus": 0}, "gpus=0: a run needs at least one worker"),
        ({"gpus": "four"}, "gpus='four' is not a whole number"),
        ({"seeds": ("one",)}, "at least one seed"),
        ({"seeds": [0, 0]}, "a seed comes twice"),
    ],
)
def test_a_wrong_knob_says_what_is_allowed(machine, knobs, words):
    machine(0)
    with pytest.raises(PlanError) as caught:
        Colours(**knobs)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Sweep.small(methods=("direct", "magic")), f"method='magic' is not known; it is one of {METHODS[0]}"),
        (lambda: Sweep.small(chunks=(4, 7)), "chunks=7 does not divide each of 4 shares"),
        (lambda: Sweep.small(gpus=1), "gpus=1: a broadcast needs at least two"),
        (lambda: Sweep.small(mib=0), "mib=0"),
        (lambda: Sweep.small(memories=("pinned",)), "memory='pinned': pages are pinned for a GPU"),
        (lambda: Trial.small(memory="paged"), "memory='paged' is not known; it is one of pageable, pinned"),
        (lambda: Trial.small(functions=("os.system",)), "it is one of methods, bugs, answers"),
        (lambda: Failure.small(rank=2), "with gpus=2 the ranks are 0 to 1"),
        (lambda: Hello.small(sums=1), "sums=1: at least 2"),
    ],
)
def test_contradictions_of_the_labs_plans(machine, make, words):
    machine(0)
    with pytest.raises(PlanError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize("gpus, size", [(0, "small"), (4, "full")])
def test_size_auto_asks_the_machine(machine, gpus, size):
    machine(gpus)
    assert Sweep.sized("auto").size == size
    assert Sweep.sized("small", gpus=2).gpus == 2
    assert Sweep.sized("small", seeds=3).seeds == (0, 1, 2)
    assert Sweep.sized("small", seeds=(7,)).seeds == (7,)
    with pytest.raises(PlanError, match="size='huge' is not known; it is one of auto, small, full"):
        Sweep.sized("huge")


def test_json_gives_the_same_plan():
    plan = Colours(colours=("blue",), seeds=(1, 2))
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert type(again) is Colours
    assert json.loads(plan.to_json())["worker"] == "nowhere"


def test_a_plan_of_a_larger_machine_can_be_read(machine):
    machine(4)
    text = Sweep.full().to_json()
    machine(0)
    plan = Plan.from_json(text)
    assert (plan.device, plan.gpus, plan.memories) == ("cuda", 4, ("pageable", "pinned"))


@pytest.mark.parametrize("text", ["", "garbage", "[]", "7", "null", "\x00", '{"gpus": 2}', '{"plan": 5}'])
def test_what_is_no_plan_is_quoted(text):
    with pytest.raises(PlanError, match="not a plan"):
        Plan.from_json(text)


@pytest.mark.parametrize(
    "change", [{"gpus": "four"}, {"colour": "red"}, {"plan": "lessons.no_such_lab.plan:Sweep"}, {"seeds": 3}]
)
def test_a_damaged_plan_is_a_plan_error(change):
    with pytest.raises(PlanError):
        Plan.from_json(json.dumps(json.loads(Colours().to_json()) | change))


@pytest.mark.parametrize("module", ["antigravity", "lessons.start.worker", "lessons.start.plan.os", "os"])
def test_a_file_cannot_have_other_modules_imported(module, monkeypatch):
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    before = set(sys.modules)
    with pytest.raises(PlanError, match="is not known to this workbook"):
        Plan.from_json(json.dumps({"plan": f"{module}:Sweep"}))
    assert set(sys.modules) == before


def test_a_plan_of_a_lab_that_is_not_imported_yet():
    """A replay in a fresh kernel: the lab's plan module is fetched by its name, and no worker with it."""
    text = Hello(device="cpu", gpus=2).to_json()
    read = "type(Plan.from_json(sys.argv[1])).__name__"
    code = f"import sys; from labkit.engine.plan import Plan; print({read}, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Hello", "False"]
