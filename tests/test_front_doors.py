"""A lab's front door: what a notebook uses is listed, found where it is defined, and explained."""

import importlib
import inspect
import re
import subprocess
import sys

import nbformat
import pytest

from labkit.repository import REPOSITORY
from lessons import ROOMS, public_names

LABS = sorted(path.parent.name for path in (REPOSITORY / "notebooks" / "lessons").glob("*/__init__.py"))
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=LABS)
def lab(request):
    """Return each lab's package."""
    return importlib.import_module(f"lessons.{request.param}")


def test_everything_listed_can_be_had_and_is_explained(lab):
    for name in (name for name in dir(lab) if not name.startswith("__")):
        found = getattr(lab, name)
        if inspect.isfunction(found) or inspect.isclass(found):
            assert inspect.getdoc(found), f"{name} has no docstring"


def test_a_name_is_defined_in_one_place(lab):
    defined = {}
    folder = REPOSITORY / "notebooks" / "lessons" / lab.__name__.rpartition(".")[2]
    for room in ROOMS:
        for file in (folder / f"{room}.py", *sorted((folder / room).glob("*.py"))):
            text = file.read_text() if file.exists() else ""
            for name in re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", text, flags=re.M):
                defined.setdefault(name, []).append(file.name)
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}
    assert not set(defined) & {path.stem for path in folder.iterdir()}, "a function hides a room"


FILES_OF_LABS = {*ROOMS, "worker", "bugs", "claims", "key_figures"}
# Given before this rule, and shown by notebooks: each goes from this list when it is renamed, and none is added.
NAMED_LIKE_FILES = {"optimizer_sharding": {"faults"}, "precision_memory": {"faults"}}


def test_no_name_hides_what_another_file_of_the_lab_may_be_called(lab):
    """Once `lessons.broadcast.theory` is imported as a module, `broadcast.theory` is no longer a function."""
    names = {name for name in public_names(lab.__name__) if name in FILES_OF_LABS}
    assert names <= NAMED_LIKE_FILES.get(lab.__name__.rpartition(".")[2], set())


def test_a_type_checker_is_shown_every_file_with_public_names(lab):
    shown = set(re.findall(r"from (\S+) import \*", inspect.getsource(lab)))
    needed = set(public_names(lab.__name__).values())
    assert shown == needed, "write one `from … import *` under TYPE_CHECKING per file with public names"


def test_a_wrong_name_is_told_with_a_near_one():
    from lessons import broadcast

    with pytest.raises(AttributeError, match="did you mean methods_chart"):
        _ = broadcast.method_chart


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_uses_is_listed(path):
    code = "\n".join(
        cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code" and cell.source[:2] != "%%"
    )
    aliases = {alias or name: name for name, alias in re.findall(r"lessons import (\w+)(?: as (\w+))?", code)}
    assert aliases
    for alias, name in aliases.items():
        package = importlib.import_module(f"lessons.{name}")
        used = set(re.findall(rf"(?<![\w.]){alias}\.(\w+)", code))
        assert {one for one in used if not one.isupper()} <= set(dir(package))


def test_listing_a_lab_loads_no_drawing_library():
    probe = "import sys, labkit; from lessons import sharding; dir(sharding); "
    probe += "print(*{'matplotlib', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_labkit_lists_what_it_offers():
    import labkit

    assert {"launch", "replay", "predict", "published", "node"} <= set(dir(labkit))
    assert all(getattr(labkit, name) is not None for name in dir(labkit))
