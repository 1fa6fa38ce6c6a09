"""The house keeps its walls: who imports whom, how files are named, and how fast the front door opens."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from house_rules import MOST_LINES, ROOT, habits, import_circles, imported, leaning, walls

LAB = "notebooks/lessons/broadcast/"
FILES = sorted(
    path
    for folder in ("labkit", "notebooks/lessons")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
)


def faults(paths: Iterable[Path], rule: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """Return what breaks a rule, file by file."""
    return {str(path.relative_to(ROOT)): told for path in paths if (told := rule(path))}


def test_files_keep_the_walls():
    assert faults(FILES, walls) == {}


def test_files_keep_the_habits():
    assert faults(FILES, habits) == {}


def test_no_files_import_each_other_in_a_circle():
    """A house with circles cannot be read from top to bottom."""
    assert import_circles(FILES) == []


@pytest.mark.parametrize("room", sorted({path.parent for path in FILES if "labkit" in path.parts} - {ROOT / "labkit"}))
def test_a_room_lists_its_files(room):
    listed = re.findall(r"^ *([\w/.]+)  ", (room / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    files = {path.name for path in FILES if path.parent == room}
    assert sorted(name for name in listed if name.endswith(".py")) == sorted(files - {"__init__.py"})


def test_the_engine_knows_no_lab():
    """Which modules hold plans is written outside; the engine's own words name no lab."""
    engine = [path for path in FILES if path.parent.name == "engine"]
    assert [path.name for path in engine if re.search(r"\blessons\b", path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(("room", "later"), [("report", ("card", "batch")), ("card", ("batch",))])
def test_a_report_knows_no_card_and_a_card_no_batch(room, later):
    rooms = {
        tuple(name.split(".")[:2]) for file in FILES if file.parent.name == room for _, name in imported(file, ROOT)
    }
    assert not rooms & {("labkit", name) for name in later}


def test_an_import_circle_is_found(tmp_path):
    """Two modules that import each other, one of them only for its types, are a circle."""
    house = tmp_path / "labkit" / "engine"
    first = _write(house / "first.py", '"""A module."""\nfrom labkit.engine import second')
    second = _write(house / "second.py", '"""A module."""\nif TYPE_CHECKING:\n    from labkit.engine.first import name')
    third = _write(house / "third.py", '"""A module."""\nfrom labkit.engine.first import name')
    assert import_circles([first, second, third], tmp_path) == [["labkit.engine.first", "labkit.engine.second"]]
    alone = _write(house / "alone.py", '"""A module that imports itself."""\nfrom labkit.engine import alone')
    assert import_circles([third, alone], tmp_path) == [["labkit.engine.alone"]]


def test_the_table_of_faults_names_tests_that_there_are():
    table = (ROOT / "tests" / "faults" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./]*test_\w+\.py)(?:::(test_\w+)(`)?)?", table)  # a name may end in "…"
    # "::test_x" alone is of the file that was named last.
    named += [("test_*.py", name, whole) for name, whole in re.findall(r"`::(test_\w+)(`)?", table)]
    assert len(named) > 100
    for file, name, whole in named:
        text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(Path(file).name))
        assert f"def {name}{'(' if whole else ''}" in text, f"{file}::{name}"


def test_tests_import_no_test_and_nothing_private():
    assert faults(sorted((ROOT / "tests").rglob("*.py")), leaning) == {}


@pytest.mark.parametrize(
    "source", ["from test_charts import drawn", "import test_charts", "from labkit.node.limits import _specs"]
)
def test_a_test_that_leans_on_another_or_on_private_names_is_found(tmp_path, source):
    assert len(leaning(_write(tmp_path / "test_it.py", source))) == 1


def test_importing_labkit_is_fast_and_leaves_gpu_libraries_out():
    probe = (
        "import sys, time; begin = time.process_time(); import labkit; "
        "print(time.process_time() - begin, *({'torch', 'transformers', 'triton'} & set(sys.modules)))"
    )
    runs = [subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True) for _ in range(3)]
    words = [run.stdout.split() for run in runs]
    assert [loaded for _, *loaded in words] == [[], [], []]
    assert min(float(seconds) for seconds, *_ in words) < 1.0


def test_a_worker_runs_none_of_what_only_the_notebook_needs():
    """Charts, stories and coursework stay in the kernel: a worker starts with its plan, its theory and itself."""
    probe = """if True:
        import importlib, sys
        from labkit.repository import LESSONS, lesson_names, without_front_doors
        without_front_doors()
        import labkit.engine.enter
        for name in lesson_names():
            if any((LESSONS / name).glob("worker*")):
                importlib.import_module(f"lessons.{name}.worker")
        parts = [module.split(".") for module in sys.modules]
        rooms = {part[1] for part in parts if part[0] == "labkit" and part[1:]}
        roles = {part[2] for part in parts if part[0] == "lessons" and part[2:]}
        print(*sorted(rooms | roles | {"pandas", "IPython"} & {*sys.modules}))"""
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "bugs engine node plan plans provenance repository stored theory worker"


@pytest.fixture
def house(tmp_path):
    """Return a function that writes one file into an otherwise plausible house and returns its path."""
    for name in ("engine/plan", "engine/worker", "engine/launches", "node/limits"):
        _write(tmp_path / "labkit" / f"{name}.py", '"""A module."""')
    for name in (
        "broadcast/plan",
        "broadcast/worker",
        "broadcast/tables",
        "broadcast/charts",
        "pipeline/worker",
        "topology/worker",
    ):
        _write(tmp_path / "notebooks" / "lessons" / f"{name}.py", '"""A module."""')
    _write(tmp_path / LAB / "bugs.py", "def late():\n    import torch")
    _write(tmp_path / "notebooks" / "lessons" / "pipeline" / "bugs.py", "SYMPTOMS = {}")
    return lambda name, source: _write(tmp_path / (name if name.startswith("notebooks/") else f"labkit/{name}"), source)


def _write(path, source):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (LAB + "plan.py", "import numpy"),
        (LAB + "plan.py", "from labkit.engine import launch"),
        (LAB + "tables.py", "import matplotlib.pyplot as plt"),
        (LAB + "tables.py", "from .charts import line"),
        (LAB + "tables.py", "from lessons.pipeline.plan import Sweep"),
        (LAB + "tables.py", "from lessons.pipeline.tables import bubble"),
        (LAB + "tables.py", "from lessons.topology.charts import node_map"),
        (LAB + "tables.py", "from ..topology.tables import copies"),
        (LAB + "tables.py", "from lessons.topology.theory import paths"),
        (LAB + "worker.py", "from lessons.topology import worker"),
        (LAB + "checks.py", "from ..pipeline.bugs import SYMPTOMS"),
        (LAB + "charts.py", "from labkit.tables.rates import rates"),
        (LAB + "story.py", "from labkit.charts import canvas"),
        (LAB + "tables.py", "from labkit.story import units"),
        ("tables/rates.py", "from lessons.pipeline.plan import Sweep"),
        ("card/measure.py", "from lessons.start import LaunchCost"),
        ("course/answers.py", "def names():\n    import lessons"),
        ("charts/canvas.py", "from labkit.tables import rates"),
        ("worker/trainer.py", "from labkit.tables import rates"),
        ("theory/shapes.py", "import numpy"),
        (LAB + "tables.py", "def later():\n    import torch"),
        (LAB + "charts.py", "from . import tables"),
        (LAB + "charts.py", "from labkit import launch"),
        (LAB + "charts.py", "import importlib\nimportlib.import_module('torch')"),
        (LAB + "story.py", "from .charts import line"),
        (LAB + "story.py", "import matplotlib"),
        (LAB + "worker.py", "import pandas"),
        (LAB + "worker.py", "from lessons.pipeline import worker"),
        (LAB + "worker/chunks.py", "from ..charts import line"),
        (LAB + "explorer.py", "import torch"),
        (LAB + "explorer.py", "from .worker import main"),
        (LAB + "__init__.py", "from . import worker"),
        (LAB + "__init__.py", "from .bugs import SYMPTOMS"),
        (LAB + "checks.py", "import transformers"),
        ("engine/launches.py", "from .worker import main"),
        ("engine/launches.py", "import torch.distributed"),
        ("engine/launches.py", "from lessons.broadcast import plan"),
        ("engine/run.py", "import numpy"),
        ("engine/worker.py", "import lessons.broadcast.plan"),
        ("node/limits.py", "import torch"),
        ("node/limits.py", "from labkit.engine.plan import Plan"),
        ("batch/execute.py", "__import__('torch')"),
        (
            "course/check.py",
            "from importlib import import_module\nimport_module('..engine.worker', __package__)",
        ),
        ("charts/canvas.py", "if False:\n    from transformers import BertModel"),
        ("tools/bench.py", "import runpy\nrunpy.run_module('labkit.engine.worker')"),
        ("__init__.py", "import torch"),
    ],
)
def test_a_hole_in_a_wall_is_found(house, tmp_path, name, source):
    assert len(walls(house(name, source), tmp_path)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (LAB + "plan.py", "import dataclasses\nfrom labkit.engine.plan import Plan\nfrom labkit import node"),
        (LAB + "tables.py", "import numpy\nfrom .plan import Sweep\nfrom labkit.node import limits"),
        (LAB + "charts.py", "import seaborn\nfrom labkit.story import units\nfrom labkit.charts import canvas"),
        (LAB + "claims.py", "import pandas\nfrom . import tables\nfrom labkit.tables import rates"),
        (LAB + "tables.py", "from labkit.provenance import fact\nfrom labkit.theory import shapes"),
        ("tables/rates.py", "import pandas\nfrom labkit.theory import shapes\nfrom labkit.node import limits"),
        (
            LAB + "worker.py",
            "import torch\nfrom labkit.engine.worker import Worker\nfrom labkit.worker.trainer import Trainer",
        ),
        (LAB + "worker/__init__.py", "from . import chunks\nfrom .chunks import Chunk\nfrom ..plan import Sweep"),
        ("notebooks/lessons/pipeline/checks.py", "from .bugs import SYMPTOMS"),
        (LAB + "explorer.py", "import ipywidgets\nfrom . import charts, tables"),
        (LAB + "bugs.py", "import torch\nfrom .worker import main"),
        ("engine/launches.py", "import pandas\nfrom labkit import node\nfrom . import plan"),
        ("engine/worker.py", "import torch\nfrom labkit.engine.plan import Plan"),
    ],
)
def test_a_door_is_no_hole(house, tmp_path, name, source):
    assert walls(house(name, source), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("utils.py", '"""A module."""'),
        ("long.py", '"""A module."""\n' + "a = 1\n" * MOST_LINES),
        ("bare.py", "a = 1"),
        ("later.py", '"""A module."""\n# TO' + "DO: more"),
        ("shell.py", '"""A module."""\nsubprocess.run("ls", shell=True)'),
        ("system.py", '"""A module."""\nos.system("ls")'),
        ("jar.py", '"""A module."""\nfrom pickle import loads'),
        ("given.py", '"""A module."""\nfrom lessons.start.solutions import place'),
        ("untyped.py", '"""A module."""\ndef table(run, by: str):\n    return run'),
        ("marked.py", '"""A module."""\ntable.attrs["source"] = "theory"'),
        ("weights.py", '"""A module."""\ntorch.load(path)'),
        ("link.py", '"""A module."""\ndist.all_gather_object(everyone, mine, group=group)'),
        ("list.py", '"""A module."""\nfrom torch.distributed import broadcast_object_list as send'),
        ("table.py", '"""A module."""\npd.read_pickle(path)'),
        ("read.py", '"""A module."""\ntext = file.read_text(errors="replace")'),
        ("write.py", '"""A module."""\nfile.write_text(text)'),
        ("opened.py", '"""A module."""\nwith file.open("a") as rows:\n    rows.write("é")'),
        ("asked.py", '"""A module."""\nsubprocess.run(["srun"], text=True)'),
    ],
)
def test_a_bad_habit_is_found(tmp_path, name, source):
    assert len(habits(_write(tmp_path / name, source))) == 1
