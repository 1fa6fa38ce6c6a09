"""source() reads a part of a file and runs nothing of it."""

import os
import subprocess
import sys

import pytest

from labkit.course.source import source
from lessons import accounting, broadcast

LANES = "lessons.broadcast.worker.lanes"


@pytest.mark.parametrize(
    ("name", "begins", "holds"),
    [
        ("lessons.broadcast.worker.methods", '"""', "def direct("),
        ("lessons.broadcast.worker", '"""', "def measure("),  # a package is its front file
        (f"{LANES}.Lanes.others", "def others(self", "return"),
        (f"{LANES}.Copy", "@dataclass\nclass Copy:", "target"),
        (f"{LANES}.Lanes.parts", "@staticmethod\ndef parts(", "return"),
    ],
)
def test_a_module_a_package_a_class_or_a_method_is_shown_with_its_decorators(name, begins, holds):
    text = source(name).data
    assert text.lstrip().startswith(begins) and holds in text


def test_a_function_is_shown_alone_and_highlighted():
    shown = source("lessons.broadcast.worker.methods.direct")
    assert shown.data.startswith("def direct(source, copies, chunks, lanes):")
    assert shown.data.count("def ") == 1 and shown.data.rstrip().endswith("copy(copy, source)")
    assert "highlight" in shown._repr_html_()


def test_code_may_be_folded_below_a_line():
    shown = source(f"{LANES}.Copy", folded="a < b")
    assert shown._repr_html_().startswith("<details><summary>a &lt; b</summary>") and "highlight" in shown._repr_html_()
    assert shown.data == source(f"{LANES}.Copy").data


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lessons.broadcast.worker.methods.telepathy", "methods.py holds .*direct.*, not 'telepathy'"),
        (f"{LANES}.Lanes.nothing", "lanes.py holds .*timeline.*, not 'nothing'"),
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


def test_nothing_of_it_is_imported():
    code = (
        "import sys\n"
        "from labkit.course.source import source\n"
        "source('lessons.broadcast.worker.methods.pipelined'); source('lessons.broadcast.worker')\n"
        "print([m for m in sys.modules if m == 'torch' or m.startswith('lessons.broadcast')])\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "[]\n"


READERS = """
from pathlib import Path
from labkit.course.source import source
from labkit.engine.launch_settings import Settings
print(ascii(source("lessons.accounting.theory.parts_bytes", "labkit.story.units").data))
print(ascii(Settings.read(Path({file!r}))))
"""


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_text_is_utf_8_in_any_locale(tmp_path, locale):
    """Under LC_ALL=C without Python's UTF-8 mode, text is ASCII wherever no encoding is named."""
    (tmp_path / "cluster.toml").write_text('interface = "großer Rechner"\n', encoding="utf-8")
    code = READERS.format(file=str(tmp_path / "cluster.toml"))
    environment = os.environ | {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    assert ascii(source("labkit.story.units").data)[1:-1] in done.stdout and r"gro\xdfer" in done.stdout
