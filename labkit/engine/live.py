"""The line below a launch's bar: what its GPUs, or the host, do now, from the samples that the agent takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from labkit.engine.errors import DamagedRun
from labkit.engine.lines import Lines
from labkit.engine.run import Run

SHOW_SECONDS = 1.0  # between two lines; a shorter run shows none


class LiveLine:
    """Shows the newest sample of every device of a run with `show`; `update` may be called as often as one likes."""

    def __init__(self, run: Run, show: Callable[[str], None]):
        self._lines, self._show, self._shown = Lines(run.samples_file), show, time.monotonic()
        self._newest: dict[int | None, dict[str, Any]] = {}

    def update(self) -> None:
        """Show what is new, once a second."""
        if time.monotonic() < self._shown + SHOW_SECONDS:
            return
        self._shown = time.monotonic()
        try:
            fresh = self._lines.new()
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
        f"GPU {gpu}: {told}"
        for gpu, one in sorted(newest.items(), key=_index)
        if gpu is not None and (told := _gpu(one))
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
