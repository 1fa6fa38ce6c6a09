"""What the tests of faults on two nodes share: a fault at its time, the error that follows, and the next launch."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults_plan import Faults

from labkit import launch
from labkit.engine import processes
from labkit.engine.errors import RunError
from labkit.engine.json_lines import read_lines
from labkit.engine.run import Run

MOST_SECONDS = 60.0  # from a fault to its error, on a loaded machine
LOOK_SECONDS = 0.05


class Later(threading.Thread):
    """Does something once a run in the folder has rows of all four ranks; `at` is when (monotonic clock).

    It waits as long as the launch lasts: stations start slowly on a loaded machine.
    """

    def __init__(self, folder: Path, action: Callable[[], Any]):
        super().__init__(daemon=True)
        self.folder, self.action, self.at, self.launched = folder, action, 0.0, threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        while not self._measures():
            if self.launched.wait(LOOK_SECONDS):
                return
        self.at = time.monotonic()
        try:
            self.action()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            self.error = error

    def _measures(self) -> bool:
        plans = sorted(self.folder.glob("**/plan.json"))
        return bool(plans) and Run(plans[-1].parent).tally()["rows"] >= 4  # a run may have no node.json yet

    def finish(self) -> None:
        """After the launch: wait for the end of what was done."""
        self.launched.set()
        self.join()
        assert self.at, "the launch ended before anything was done to it"
        assert self.error is None, f"nothing was done to the launch: {self.error}"


def when_it_measures(folder: Path, action: Callable[[], Any]) -> Later:
    """Do something once the newest run in the folder has rows of all four ranks."""
    later = Later(folder, action)
    later.start()
    return later


def failure(
    kind: type[RunError] | tuple[type[RunError], ...], plan: Faults, later: Later | None, most_s: float, **options
) -> tuple[RunError, float]:
    """Return the error of a launch on two nodes, and the seconds to it: from a fault, or the culprit's last event."""
    with pytest.raises(RunError) as caught:
        launch(plan, nodes=2, **options)
    now, error = time.monotonic(), caught.value
    if later:
        later.finish()
        seconds = now - later.at
    else:
        seconds = time.time() - read_lines(error.run.events_file(error.rank or 0))[-1]["time"]
    assert type(error) in (kind if isinstance(kind, tuple) else (kind,)), error
    assert seconds < most_s
    return error, seconds


def nothing_left(run: Run) -> None:
    """No process on either node, which share this machine, has the run's mark or stands below one that has."""
    assert not processes.members(run)


def works_again() -> None:
    run = launch(Faults(), nodes=2)
    assert run.status["state"] == "finished" and run.status["processes_left"] == 0
