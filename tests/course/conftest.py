"""A student's own folders, for the tests that write into them."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.course import answers


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
