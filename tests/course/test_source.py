"""source() reads a part of a file and runs nothing of it."""

import subprocess
import sys

import pytest

from labkit.course.source import source
from lessons import accounting, broadcast

LANES = "lessons.broadcast.worker.lanes"


def test_a_module():
    text = source("lessons.broadcast.worker.methods").data
    assert text.startswith('"""')
    assert "def direct(" in text
    assert "def links(" in text


def test_a_package_is_its_front_file():
    assert "def measure(" in source("lessons.broadcast.worker").data


def test_a_function_alone():
    text = source("lessons.broadcast.worker.methods.direct").data
    assert text.startswith("def direct(source, copies, chunks, lanes):")
    assert text.count("def ") == 1
    assert text.rstrip().endswith("copy(copy, source)")


def test_a_class_and_a_method_in_it():
    assert source(f"{LANES}.Lanes").data.startswith("class Lanes")
    assert source(f"{LANES}.Lanes.others").data.lstrip().startswith("def others(self")


def test_decorators_are_shown():
    assert source(f"{LANES}.Copy").data.startswith("@dataclass\nclass Copy:")
    assert source(f"{LANES}.Lanes.parts").data.lstrip().startswith("@staticmethod\n    def parts(")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lessons.broadcast.worker.methods.telepathy", "methods.py holds .*direct.*, not 'telepathy'"),
        (f"{LANES}.Lanes.nothing", "lanes.py holds .*timeline.*, not 'nothing'"),
        ("lessons.nowhere.worker", "__init__.py holds .*not 'nowhere'"),
        ("nosuchpackage.thing", "no module 'nosuchpackage' here"),
    ],
)
def test_an_unknown_name_says_what_there_is(name, said):
    with pytest.raises(ValueError, match=said):
        source(name)


def test_a_lesson_then_names_of_what_its_workers_run():
    text = source(broadcast, "direct", "Lanes.others", "measure").data
    assert text.startswith("def direct(source")
    assert "def others(self" in text and "def measure(worker" in text
    with pytest.raises(ValueError, match=r"the worker of lessons.broadcast holds .*direct.*, not 'telepathy'"):
        source(broadcast, "telepathy")
    with pytest.raises(ValueError, match=r"lessons.accounting has no worker"):
        source(accounting, "direct")


def test_it_is_highlighted_as_python():
    assert "highlight" in source(f"{LANES}.Lanes")._repr_html_()


def test_nothing_of_it_is_imported():
    code = (
        "import sys\n"
        "from labkit.course.source import source\n"
        "source('lessons.broadcast.worker.methods.pipelined'); source('lessons.broadcast.worker')\n"
        "print([m for m in sys.modules if m == 'torch' or m.startswith('lessons.broadcast')])\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "[]\n"
