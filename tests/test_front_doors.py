"""Front doors: what notebooks use is there, is explained, and loads no heavy library before something is drawn."""

import importlib
import inspect
import re
import subprocess
import sys

import nbformat
import pytest

import labkit
from labkit.repository import LESSONS, REPOSITORY, lesson_names

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=lesson_names())
def lesson(request):
    """Return each lesson's package."""
    return importlib.import_module(f"lessons.{request.param}")


def test_what_a_lesson_offers_is_explained_and_hides_none_of_its_files(lesson):
    """Once `lessons.broadcast.theory` is imported as a module, `broadcast.theory` is no longer a function."""
    own = {name: value for name, value in vars(lesson).items() if inspect.isfunction(value) or inspect.isclass(value)}
    assert [name for name, value in own.items() if not inspect.getdoc(value)] == []
    assert not set(own) & {path.stem for path in (LESSONS / lesson.__name__.rpartition(".")[2]).iterdir()}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_uses_is_there(path):
    code = "\n".join(
        cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code" and cell.source[:2] != "%%"
    )
    aliases = {alias or name: name for name, alias in re.findall(r"lessons import (\w+)(?: as (\w+))?", code)}
    assert aliases
    for alias, name in aliases.items():
        used = set(re.findall(rf"(?<![\w.]){alias}\.(\w+)", code))
        assert used <= set(vars(importlib.import_module(f"lessons.{name}")))


def test_the_front_doors_load_no_drawing_and_no_gpu_library():
    imports = "; ".join(f"import lessons.{name}" for name in lesson_names())
    heavy = "{'matplotlib', 'seaborn', 'ipywidgets', 'torch', 'transformers', 'triton'}"
    probe = f"import sys, labkit.front, labkit.batch; {imports}; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_labkit_lists_what_it_offers_and_names_it_where_a_name_is_wrong():
    assert {"launch", "replay", "predict", "published", "node"} <= set(dir(labkit))
    assert all(getattr(labkit, name) is not None for name in dir(labkit))
    with pytest.raises(AttributeError, match=r"labkit has no 'lunch'; it has .*launch"):
        _ = labkit.lunch
