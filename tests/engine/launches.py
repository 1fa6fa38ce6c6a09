"""What the launcher's tests share: failed launches, kernels in a process of their own, and waiting for a run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults_plan import Faults

from labkit.engine import processes
from labkit.engine.errors import RunError
from labkit.engine.run import Run
from labkit.launching import launch

HERE = Path(__file__).parent


def failed(kind: type[RunError], *faults: str, **options) -> RunError:
    """Return the error of a launch that fails; nothing of it may be left."""
    with pytest.raises(kind) as caught:
        launch(Faults(faults=faults), **options)
    assert type(caught.value) is kind
    assert not processes.members(caught.value.run)
    return caught.value


def line_of(text: str) -> int:
    """The number of the only line of the lab that holds the text."""
    lines = (HERE / "faults_worker.py").read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


def soon(found, seconds: float = 30.0):
    """Wait until `found()` gives something true, and give that."""
    deadline = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < deadline, f"nothing in {seconds} s"
        time.sleep(0.05)
    return result


def the_run(folder: Path, rows: int, among: int = 1, seconds: float = 30.0) -> Run:
    """Wait for the newest run in the folder, when there are so many, to have so many rows."""

    def found():
        runs = sorted(
            (Run(plan.parent) for plan in folder.glob("runs/*/plan.json")), key=lambda run: run.folder.stat().st_ctime
        )
        return runs[-1] if len(runs) == among and runs[-1].node_file.exists() and len(runs[-1].rows) >= rows else None

    return soon(found, seconds)


def kernel(*faults: str) -> subprocess.Popen:
    command = [sys.executable, str(HERE / "a_kernel.py"), *faults]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
