"""What the node's card shows of lab 02: the broadcasts from pinned memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import KeyFigure, Measured, datasheet, repeats, workers
from lessons.broadcast.plan import CHUNKED, Sweep
from lessons.broadcast.theory import NAMES, least_seconds

if TYPE_CHECKING:
    from labkit.engine.run import Run

_CHUNKS = 16


def card_plans() -> list[Sweep]:
    """Return what `make card` launches: the two broadcasts in chunks, from the fastest memory that there is."""
    chosen = {"methods": ("links", *CHUNKED), "chunks": (_CHUNKS,), "repeats": 5}
    return [Sweep.full(memories=("pinned",), **chosen) if Sweep.on_gpus() else Sweep.small(**chosen)]


def _rate(method: str) -> Callable[[Run], Measured | None]:
    """Return how a run gives what each GPU receives per second."""

    def measure(run: Run) -> Measured | None:
        memory = "pinned" if "pinned" in run.plan.memories else "pageable"
        setting = f"{run.plan.mib} MiB, {memory}, {_CHUNKS} chunks, {workers(run)}"
        seconds = Measured.of(repeats(run, "seconds", method=method, memory=memory, chunks=_CHUNKS), setting)
        if seconds is None:
            return None
        known, size = datasheet(run), 4 * run.plan.elements
        host, nvlink = (known.pcie_gb_per_s, known.nvlink_gb_per_s) if known else (None, None)
        rates = [1e9 * (rate or math.nan) for rate in (host, nvlink)]
        return seconds.rate(size / 1e9, size / 1e9 / least_seconds(method, size, run.plan.gpus, _CHUNKS, *rates))

    return measure


KEY_FIGURES = tuple(KeyFigure(NAMES[method], "GB/s", "sweep", _rate(method), by_host=True) for method in CHUNKED)
