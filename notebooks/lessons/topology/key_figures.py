"""What the node's card shows of lab 01: how fast its links are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.node.limits import ring_bus_limit_gb_per_s
from labkit.tables.key_figures import KeyFigure, Measured, datasheet, on_one, workers
from lessons.topology.plan import Copies

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run


def card_plans() -> list[Copies]:
    """Return what `make card` launches: all copies of pinned memory."""
    if Copies.on_gpus():
        return [Copies.full(memories=("pinned",), warm_ups=5, repeats=9)]
    return [Copies.small(gpus=2)]


def _rows(run: Run, copy: str) -> pd.DataFrame:
    rows = run.rows
    return rows[(rows["copy"] == copy) & ~rows["warm_up"].astype(bool) & (rows["status"] == "ok")]


def _pinned(run: Run, direction: str, together: bool) -> pd.DataFrame:
    """Return the copies between pinned host memory and each GPU, from the NUMA node that serves the GPU best."""
    rows = _rows(run, direction)
    rows = rows[(rows["memory"] == "pinned") & (rows["together"] == together)]
    rates = rows.groupby(["rank", "numa"])["gb_per_s"].median()
    nearest = dict(rates.groupby("rank").idxmax().to_numpy()) if len(rates) else {}
    return rows[rows["numa"] == rows["rank"].map(nearest)]


def _slowest(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    """Return the repeats of the setting of `by` whose median is the lowest."""
    medians = rows.groupby(by)["gb_per_s"].transform("median")
    return rows[medians == medians.min()]["gb_per_s"]


def _size(run: Run) -> str:
    return f"{run.plan.mib} MiB"


def _host_link(direction: str) -> Callable[[Run], Measured | None]:
    """Return how a run gives the rate of the slowest GPU's link with the host, used alone."""

    def measure(run: Run) -> Measured | None:
        known = datasheet(run)
        return Measured.of(
            _slowest(_pinned(run, direction, False), ["rank"]), _size(run), known and known.pcie_gb_per_s
        )

    return measure


def _all_host_links(run: Run) -> Measured | None:
    known = datasheet(run)
    sums = _pinned(run, "host_to_gpu", True).groupby("iteration")["gb_per_s"].sum()
    limit = run.plan.gpus * known.pcie_gb_per_s if known and known.pcie_gb_per_s else None
    return Measured.of(sums, f"{_size(run)}, {workers(run)}", limit)


def _slowest_pair(run: Run) -> Measured | None:
    rows = _rows(run, "gpu_to_gpu")
    pairs = rows[rows["source"] != rows["target"]]
    return Measured.of(
        _slowest(pairs, ["source", "target"]), on_one(run, _size(run)), ring_bus_limit_gb_per_s(datasheet(run))
    )


def _within_a_gpu(run: Run) -> Measured | None:
    rows, known = _rows(run, "gpu_to_gpu"), datasheet(run)
    own = rows[rows["source"] == rows["target"]]
    limit = known.hbm_gb_per_s / 2 if known and known.hbm_gb_per_s else None  # a copy reads and writes
    return Measured.of(_slowest(own, ["source"]), on_one(run, _size(run)), limit)


KEY_FIGURES = (
    KeyFigure(
        "host → GPU, pinned, slowest GPU", "GB/s", "copies", _host_link("host_to_gpu"), least_gpus=1, by_host=True
    ),
    KeyFigure(
        "GPU → host, pinned, slowest GPU", "GB/s", "copies", _host_link("gpu_to_host"), least_gpus=1, by_host=True
    ),
    KeyFigure("host → GPU, all links together", "GB/s", "copies", _all_host_links, least_gpus=2, by_host=True),
    KeyFigure("GPU → GPU, slowest pair", "GB/s", "copies", _slowest_pair, least_gpus=0),
    KeyFigure("copy within a GPU, slowest GPU", "GB/s", "copies", _within_a_gpu, least_gpus=1),
)
