"""Continuous integration fails only for what fails twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FIRST = "import pathlib; first = not pathlib.Path('seen').exists(); pathlib.Path('seen').touch()"  # the first time?
WRONG = f"def test_once():\n    {FIRST}\n    assert not first\n"


@pytest.mark.slow
def test_what_fails_twice_fails_and_what_fails_once_is_named(tmp_path, write_notebook):
    """In a notebook, the cells before the failed one run again, too."""
    (tmp_path / "test_it.py").write_text(f"{WRONG}def test_always(): assert False\ndef test_never(): pass\n")
    write_notebook(tmp_path / "it.ipynb", (FIRST.replace("seen", "it"), []), ("1 / (not first)", []), ("1 / 0", []))
    failed, names = repeated(tmp_path)
    once, always = ["it.ipynb::Cell 1", "test_it.py::test_once"], ["it.ipynb::Cell 2", "test_it.py::test_always"]
    assert failed
    assert names == [*(f"failed twice: {name}" for name in always), *(f"flaky: {name}" for name in once)]


@pytest.mark.slow
def test_a_run_whose_tests_fail_once_does_not_fail(tmp_path):
    (tmp_path / "test_it.py").write_text(WRONG)
    assert repeated(tmp_path) == (False, ["flaky: test_it.py::test_once"])


@pytest.mark.slow
def test_a_run_that_pytest_itself_fails_is_not_repeated(tmp_path):
    """It need not have run every test."""
    (tmp_path / "test_it.py").write_text(WRONG)
    (tmp_path / "conftest.py").write_text("def pytest_sessionfinish(session):\n    raise SystemExit(3)\n")
    assert repeated(tmp_path) == (True, [])


def repeated(folder: Path) -> tuple[bool, list[str]]:
    """Return whether .ci/repeat.py fails where `make test` runs a folder's tests, and what it says of them."""
    pytest = ".venv/bin/python -m pytest -n 2 --dist loadfile --nbval --nbval-current-env ."
    (folder / "Makefile").write_text(f"test:\n\t@{pytest}\n")
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    command = [sys.executable, ROOT / ".ci" / "repeat.py", "make", "test"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment())
    names = [line for line in done.stdout.splitlines() if line.startswith(("flaky: ", "failed twice: "))]
    return done.returncode != 0, names


def environment() -> dict[str, str]:
    """Return the environment without what this run of make and pytest tells those below it."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST", "CI"))
    }
