"""What matters of lab 02: what the broadcasts from pinned memory reach, beside the links and beside each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure_of, ratio, repeats, workers
from lessons.broadcast.plan import CHUNKED, Sweep
from lessons.broadcast.tables import best, methods
from lessons.broadcast.theory import least_seconds

if TYPE_CHECKING:
    from labkit.engine.run import Run

_CHUNKS = 16  # of the card's figures


def card_plans() -> list[Sweep]:
    """Return what `make card` launches: the two broadcasts in chunks, from the fastest memory that there is."""
    chosen = {"methods": ("links", *CHUNKED), "chunks": (_CHUNKS,), "repeats": 5}
    return [Sweep.full(memories=("pinned",), **chosen) if Sweep.on_gpus() else Sweep.small(**chosen)]


def rate(run: Run, method: str) -> Measured | None:
    """Return what each GPU receives per second."""
    memory = "pinned" if "pinned" in run.plan.memories else "pageable"
    setting = f"{run.plan.mib} MiB, {memory}, {_CHUNKS} chunks, {workers(run)}"
    seconds = Measured.of(repeats(run, "seconds", method=method, memory=memory, chunks=_CHUNKS), setting)
    if seconds is None:
        return None
    sheet, size = run.datasheet, 4 * run.plan.elements
    host, nvlink = (sheet.pcie_gb_per_s, sheet.nvlink_gb_per_s) if sheet else (None, None)
    rates = [1e9 * (link or math.nan) for link in (host, nvlink)]
    return seconds.rate(size / 1e9, size / 1e9 / least_seconds(method, size, run.plan.gpus, _CHUNKS, *rates))


def times_as_long(run: Run, method: str, other: str) -> Measured | None:
    """Return a method's time divided by another's, both pinned, each with its best chunk count."""
    table = best(methods(run), links=True)
    return ratio(*(figure_of(run, table, "seconds", method=each, memory="pinned") for each in (method, other)))
