"""What matters of lab 09: what large and small messages reach, and how near nccl-tests ours are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, workers
from labkit.theory.sizes import KIB, MIB
from lessons.collectives import tables
from lessons.collectives.plan import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run

_ON_CARD = ("all-reduce", "all-gather", "all-to-all")


def card_plans() -> list[Sweep]:
    """Return what `make card` launches: a small and a large message, among all GPUs."""
    if not Sweep.on_gpus():
        return [Sweep.small(collectives=_ON_CARD, sizes_kib=(1, 1024))]
    chosen = {"counts": (Sweep.full().gpus,), "backends": ("nccl",), "sizes_kib": (1, 1048576)}
    return [Sweep.full(collectives=_ON_CARD, **chosen)]


def _row(run: Run, collective: str, clock: str, largest: bool) -> pd.Series | None:
    """Return the row of `bandwidths` for the largest or smallest message among all of the run's workers."""
    table = tables.bandwidths(run)
    chosen = (table["collective"] == collective) & (table["clock"] == clock) & (table["status"] == "ok")
    rows = table[chosen & (table["ranks"] == run.plan.gpus) & (table["backend"] == run.plan.backend)]
    return None if rows.empty else rows.loc[rows["bytes"].idxmax() if largest else rows["bytes"].idxmin()]


def _size_text(size_bytes: float) -> str:
    """Return the size of a message as a setting says it: "1024 MiB", "1 KiB"."""
    mib = size_bytes / MIB
    return f"{mib:g} MiB" if mib >= 1 else f"{size_bytes / KIB:g} KiB"


def bus(run: Run, collective: str) -> Measured | None:
    """Return the bus bandwidth of the largest message."""
    row = _row(run, collective, "in flight", largest=True)
    if row is None:
        return None
    rate, setting = row["bus_gb_per_s"], f"{_size_text(row['bytes'])}, {workers(run)}"
    half = rate * row["spread_us"] / row["median_us"]
    return Measured(rate, rate - half, rate + half, int(row["count"]), setting, row["limit"])


def one_small_call(run: Run) -> Measured | None:
    row = _row(run, "all-reduce", "one call", largest=False)
    if row is None:
        return None
    time, half, setting = row["median_us"], row["spread_us"], f"{_size_text(row['bytes'])}, {workers(run)}"
    return Measured(time, time - half, time + half, int(row["count"]), setting)


def over_nccl_tests(run: Run, collective: str) -> Measured | None:
    """Return the lowest ratio of our bus bandwidth to nccl-tests', with our times' spread there.

    None where one of the sizes has no ratio: the others do not speak for it.
    """
    table = tables.against(run)
    rows = table[(table["collective"] == collective) & (table["bytes"] >= tables.LARGE_BYTES)]
    if rows.empty or rows["ratio"].isna().any():
        return None
    lowest = rows.loc[rows["ratio"].idxmin()]
    return figure(run, lowest["ratio"], lowest["ratio"] * lowest["spread_share"])
