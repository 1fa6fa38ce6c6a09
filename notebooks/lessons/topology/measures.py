"""What matters of lab 01: the rates of the node's links, how alike the pairs of GPUs are, and what no link can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.node.limits import ring_bus_limit_gb_per_s
from labkit.tables.measures import Measured, figure, of_each, on_one, ratio, workers
from lessons.topology.plan import Copies
from lessons.topology.tables import copies

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


def host_link(run: Run, direction: str) -> Measured | None:
    """Return the rate of the slowest GPU's link with the host, used alone."""
    rows, limits = _pinned(run, direction, False), run.datasheet
    return of_each(run, rows, "gb_per_s", ["rank"], f"{run.plan.mib} MiB", limits and limits.pcie_gb_per_s)


def all_host_links(run: Run) -> Measured | None:
    limits = run.datasheet
    sums = _pinned(run, "host_to_gpu", True).groupby("iteration")["gb_per_s"].sum()
    limit = run.plan.gpus * limits.pcie_gb_per_s if limits and limits.pcie_gb_per_s else None
    return Measured.of(sums, f"{run.plan.mib} MiB, {workers(run)}", limit)


def pair(run: Run, which: str) -> Measured | None:
    """Return the rate of the slowest ("min") or the fastest ("max") pair of different GPUs."""
    rows = _rows(run, "gpu_to_gpu")
    pairs, limit = rows[rows["source"] != rows["target"]], ring_bus_limit_gb_per_s(run.datasheet)
    return of_each(run, pairs, "gb_per_s", ["source", "target"], on_one(run, f"{run.plan.mib} MiB"), limit, which)


def pairs_apart(run: Run) -> Measured | None:
    return ratio(pair(run, "max"), pair(run, "min"))


def share_of_links(run: Run) -> Measured | None:
    """Return which share of its NVLinks' rate, the driver's, the slowest pair reaches; None of copies too small."""
    if run.plan.size == "small":
        return None
    limits = run.datasheet
    limit = [limits.nvlink_gb_per_s] if limits and limits.nvlink_gb_per_s else []
    return ratio(pair(run, "min"), Measured.of(limit, ""))


def within_a_gpu(run: Run) -> Measured | None:
    rows, limits = _rows(run, "gpu_to_gpu"), run.datasheet
    copies = rows[rows["source"] == rows["target"]]
    limit = limits.hbm_gb_per_s / 2 if limits and limits.hbm_gb_per_s else None  # a copy reads and writes
    return of_each(run, copies, "gb_per_s", ["source"], on_one(run, f"{run.plan.mib} MiB"), limit)


def impossible(run: Run) -> Measured:
    """Return how many copies are faster than a datasheet allows."""
    return figure(run, (copies(run)["verdict"] == "impossible").sum())
