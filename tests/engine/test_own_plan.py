"""A plan class of one's own, in a script or in a notebook's cell: workers get its knobs and points without its code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from labkit.engine.errors import PlanError
from labkit.engine.plan import ListedPlan, Plan
from labkit.launching import launch
from labkit.repository import REPOSITORY

pytestmark = pytest.mark.slow

SCRIPT = """
from dataclasses import dataclass
from typing import ClassVar
from labkit import Plan, launch

@dataclass(frozen=True, kw_only=True)
class Mine(Plan):
    lab: ClassVar[str] = "mine"
    worker: ClassVar[str] = "mine"

    base: int = 10
    shape: tuple[int, ...] = (2, 3)
    factors: tuple[int, ...] = (1, 2)

    def knobs(self):
        for factor in self.factors:
            yield {"factor": factor}

def measure(worker, point):
    worker.record(product=point.factor * worker.plan.base * worker.rank, shape=type(worker.plan.shape).__name__)

if __name__ == "__main__":
    run = launch(Mine(gpus=2, device="cpu", seeds=(5,)))
    print(list(run.rows["product"]), set(run.rows["shape"]), run.plan == Mine(gpus=2, device="cpu", seeds=(5,)))
    print(run.folder)
"""


def test_a_plan_class_in_a_script_can_be_launched(tmp_path):
    """The worker's code lies in the same file (test_shadows.py: in one beside it); it stands in another folder."""
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    said, folder = done.stdout.splitlines()
    assert said == "[0, 10, 0, 20] {'tuple'} True"
    read = "from labkit import replay; import sys; run = replay(sys.argv[1]); print(len(run.rows), run.plan.base); run"
    done = subprocess.run([sys.executable, "-c", read, folder], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout.split() == ["4", "10"], done.stderr


@dataclass(frozen=True, kw_only=True)
class Odd(Plan):
    lab: ClassVar[str] = "odd"
    worker: ClassVar[str] = "odd_worker"

    gpus: int = 2
    device: str = "cpu"
    thing: Any = None
    settings: str = ""

    def knobs(self):
        yield {"a": Path(self.settings).read_text() if self.settings else ""}


class Undescribed(dict):
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"settings": "/nowhere/at/all.json"}, r"Odd\.knobs\(\) raised FileNotFoundError: .*'/nowhere/at/all\.json'"),
        ({"settings": "/"}, r"Odd\.knobs\(\) raised IsADirectoryError: .*'/'"),
        ({"thing": {1}}, r"thing is a set, which the run's plan\.json cannot hold"),
        ({"thing": (1, [2, threading.Lock()])}, r"thing is a tuple, which .* cannot hold"),
        ({"thing": {(1, 2): 3}}, r"thing is a dict, which .* cannot hold"),
        ({"thing": Undescribed(a=b"")}, r"thing is a Undescribed, which .* cannot hold"),
    ],
)
def test_a_plan_that_cannot_be_written_down_leaves_no_run(tmp_path, monkeypatch, knobs, said):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    with pytest.raises(PlanError, match=said):
        launch(Odd(**knobs))
    assert not [*tmp_path.iterdir()]


def elsewhere(**changes) -> str:
    """Return the file of a plan whose class only its own script has."""
    points = [{"point": 0, "seed": 0, "sizes": [1, 2]}, {"point": 1, "seed": 0, "sizes": [3]}]
    known = {"plan": "antigravity:Outer.Mine", "worker": "my_worker", "lab": "mine", "gpus": 2, "seeds": [0]}
    return json.dumps({**known, "size": "custom", "device": "cpu", "base": 7, "points": points} | changes)


def test_a_class_that_is_not_known_is_read_without_an_import(monkeypatch):
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    before = set(sys.modules)
    plan = Plan.from_json(elsewhere())
    assert isinstance(plan, ListedPlan)
    assert (plan.lab, plan.worker, plan.name, plan.gpus, plan.base) == ("mine", "my_worker", "mine", 2, 7)
    assert [vars(point) for point in plan.points()] == [
        {"point": 0, "seed": 0, "sizes": (1, 2)},
        {"point": 1, "seed": 0, "sizes": (3,)},
    ]
    assert Plan.from_json(plan.to_json()) == plan
    assert set(sys.modules) == before


@pytest.mark.parametrize("change", [{"points": 3}, {"points": ["x"]}, {"gpus": "two"}, {"lab": None, "device": "tpu"}])
def test_a_damaged_file_of_such_a_plan_is_a_plan_error(change):
    with pytest.raises(PlanError):
        Plan.from_json(elsewhere(**change))
