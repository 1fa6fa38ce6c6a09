"""A student's own folders, for the tests that write into them."""

import shutil
import subprocess

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.course import answers
from labkit.course.grading import confine


@pytest.fixture
def answers_folder(tmp_path, monkeypatch):
    """Return the folder of answers of this test alone; its runs are kept beside it, and no progress is shown."""
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "answers"))
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")
    return tmp_path / "answers"


@pytest.fixture
def shell():
    """A shell in which the workbook's magic is known."""
    shell = InteractiveShell.instance()
    answers.register()
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture(scope="session")
def confined():
    """Skips a test of confined answers where the kernel refuses namespaces. A wall that is broken skips nothing."""
    if shutil.which("unshare") is None or subprocess.run([*confine._entrance(), "true"]).returncode:
        pytest.skip("unshare is missing, or the kernel refuses namespaces")
