"""`lessons` is found where labkit is, and from the same checkout."""

import os
import shutil
import subprocess
import sys

from labkit.repository import NOTEBOOKS, REPOSITORY


def printed(code, checkout, *flags):
    """Return what a fresh Python prints that finds labkit in a checkout."""
    command = [sys.executable, *flags, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_labkit_alone_makes_lessons_importable():
    """-S: no .pth file is read."""
    code = "import labkit, lessons; print(lessons.__file__)"
    assert printed(code, REPOSITORY, "-S") == str(NOTEBOOKS / "lessons" / "__init__.py")


def test_lessons_come_from_the_checkout_of_labkit_and_nothing_beside_a_notebook_hides_a_module_of_python(tmp_path):
    """The .pth file of .venv names another checkout, this one."""
    shutil.copytree(REPOSITORY / "labkit", tmp_path / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "notebooks" / "lessons").mkdir(parents=True)
    (tmp_path / "notebooks" / "lessons" / "__init__.py").touch()
    (tmp_path / "notebooks" / "colorsys.py").write_text("raise RuntimeError")
    code = "import labkit, colorsys, lessons; print(lessons.__file__)"
    assert printed(code, tmp_path) == str(tmp_path / "notebooks" / "lessons" / "__init__.py")
