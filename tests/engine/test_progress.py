"""What a notebook shows of a launch that did not finish: a bar short of its end, and one sentence."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.engine import progress
from labkit.engine.errors import Interrupted


@pytest.mark.parametrize(("finished", "shown"), [(True, 3), (False, 2)])
def test_the_bar_of_a_run_that_failed_is_never_full(finished, shown, monkeypatch):
    """tqdm colours a full bar green in a notebook, also above an error."""
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    plan: Any = SimpleNamespace(lab="lab", points=lambda: [1, 2, 3])
    launched = progress.ProgressBars(plan, progress=True)
    bar = launched.points_bar()
    bar.update(3)
    launched.close(finished=finished)
    launched.close()
    assert bar.n == shown
    assert ("not finished" in bar.desc) == (not finished)


def test_an_interrupted_cell_shows_one_line():
    run: Any = SimpleNamespace(folder="/runs/one", tally=lambda: {"rows": 2})
    (line,) = Interrupted(run)._render_traceback_()
    assert line.startswith("Interrupted: interrupted; 2 rows were measured") and "\n" not in line


INTERRUPTED_IMPORT = """
import importlib.abc, signal, sys
from types import SimpleNamespace
from labkit.engine.progress import ProgressBars

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "asyncio.events":  # tqdm.auto imports asyncio
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

assert "asyncio.events" not in sys.modules
sys.meta_path.insert(0, Interrupting())
try:
    ProgressBars(SimpleNamespace(lab="lab", points=list), progress=True)
except KeyboardInterrupt:
    ProgressBars(SimpleNamespace(lab="lab", points=list), progress=True).points_bar()
    print("whole")
"""


def test_an_interrupt_in_the_first_bars_import_leaves_no_half_module():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True)
    assert done.stdout == "whole\n", done.stderr
