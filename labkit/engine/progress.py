"""What a launch shows while it goes on: the bar of its points, and a line on what it waits for or what its GPUs do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from labkit.engine.errors import DamagedRun
from labkit.engine.interrupts import uninterrupted
from labkit.engine.json_lines import JsonLines
from labkit.engine.plan import Plan
from labkit.engine.run import Run


class ProgressBars:
    """The bars of one launch, each made when it is first shown; none with progress=False or LABKIT_PROGRESS=0."""

    def __init__(self, plan: Plan, progress: bool):
        with uninterrupted():
            from tqdm.auto import tqdm
        self._tqdm: Any = tqdm
        self._plan, self._hidden = plan, not progress or os.environ.get("LABKIT_PROGRESS") == "0"
        self._points = self._line = None

    def points_bar(self) -> Any:
        """Return the bar of the plan's points."""
        if self._points is None:
            title, points = f"{self._plan.lab}: starting workers", len(self._plan.points())
            self._points = self._tqdm(total=points, desc=title, unit="point", disable=self._hidden)
        return self._points

    def show_waiting(self, text: str) -> None:
        """Say below the bar what the launch waits for."""
        if self._line is None:
            self.points_bar().set_description_str(f"{self._plan.lab}: waiting")
        self.show_below(text)

    def show_below(self, text: str) -> None:
        """Show a line of text below the bar, instead of the one before; it vanishes with the bar's end."""
        if self._line is None:
            self._line = self._tqdm(total=0, bar_format="{desc}", leave=False, position=1, disable=self._hidden)
        self._line.set_description_str(text)

    def remove_line(self) -> None:
        """Remove the line below the bar."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def close(self, finished: bool = True) -> None:
        """End what is shown. Where the run did not finish, its bar stays short of the end: a full one turns green."""
        self.remove_line()
        if (bar := self._points) is None:
            return
        if not finished:
            bar.set_description_str(f"{self._plan.lab}: not finished", refresh=False)
            bar.n = max(0, min(bar.n, bar.total - 1))
        bar.close()


SHOW_SECONDS = 1.0  # between two lines; a shorter run shows none


class LiveLine:
    """Shows the newest sample of every device of a run with `show`; `update` may be called as often as one likes."""

    def __init__(self, run: Run, show: Callable[[str], None]):
        self._lines, self._show, self._shown = JsonLines(run.samples_file), show, time.monotonic()
        self._newest: dict[int | None, dict[str, Any]] = {}

    def update(self) -> None:
        """Show what is new, once a second."""
        if time.monotonic() < self._shown + SHOW_SECONDS:
            return
        self._shown = time.monotonic()
        try:
            fresh = self._lines.new_objects()
        except (OSError, DamagedRun):  # there is no such file, or none that can be read
            return
        self._newest |= {sample.get("gpu"): sample for sample in fresh}
        if text := line(self._newest):
            self._show(text)


def line(newest: dict[int | None, dict[str, Any]]) -> str:
    """Return the devices' newest samples as a line: utilisation and memory of each GPU, else load of the host.

    What a sample does not tell is left out; "" where nothing is told.
    """
    gpus = [
        f"GPU {gpu}: {shown}"
        for gpu, sample in sorted(newest.items(), key=_index)
        if gpu is not None and (shown := _gpu(sample))
    ]
    host = newest.get(None, {})
    if not gpus and "cpu_percent" in host:
        free = f", {host['memory_available_gib']:.1f} GiB free" if "memory_available_gib" in host else ""
        return f"CPU: {host['cpu_percent']:.0f} %{free}"
    return " | ".join(gpus)


def _gpu(sample: dict[str, Any]) -> str:
    parts = []
    if (busy := sample.get("utilisation_percent")) is not None:
        parts.append(f"{busy:.0f} %")
    if (mib := sample.get("memory_mib")) is not None:
        parts.append(f"{mib / 1024:.1f} GiB")
    return ", ".join(parts)


def _index(item: tuple[int | None, Any]) -> int:
    return -1 if item[0] is None else item[0]
