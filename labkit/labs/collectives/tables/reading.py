"""The published timings re-computed: what a link allows, and what a line finds in them; what a bandwidth is made of."""

from __future__ import annotations

import math

import pandas as pd

from labkit.labs.collectives.theory import bus_factor, bus_gb_per_s, hops
from labkit.node import limits
from labkit.provenance import like
from labkit.tables.resnet import PARAMETERS as PARAMETERS
from labkit.tables.resnet import candidates as candidates
from labkit.tables.resnet import published_bandwidth as published_bandwidth
from labkit.theory.lines import fit

_GPU = limits.spec("Tesla V100-SXM2-32GB")  # of all V100s the ones with NVLink
_LIMIT = limits.ring_bus_limit_gb_per_s(_GPU)
_LOW = 0.1
_MB = 1e6


def published_times(all_reduce: pd.DataFrame) -> pd.DataFrame:
    """Return all_reduce.csv with bus_gb_per_s, and for NCCL the limit of a V100's NVLinks, the share and a verdict.

    least_ms is what the bytes need at that limit. "suspiciously low" is less than a tenth.
    """
    table = all_reduce.assign(
        bus_gb_per_s=[
            bus_gb_per_s("all-reduce", row.processes, _MB * row.megabytes, row.seconds)
            for row in all_reduce.itertuples()
        ]
    )
    table["limit"] = [_LIMIT if backend == "nccl" else math.nan for backend in table["backend"]]
    moved = [bus_factor("all-reduce", row.processes) * _MB * row.megabytes for row in table.itertuples()]
    table["least_ms"] = 1e3 * limits.least_seconds_to_move(pd.Series(moved), table["limit"])
    return like(
        limits.against_limit(table, "bus_gb_per_s", "limit", low=_LOW).reset_index(drop=True), all_reduce, small=False
    )


def published_fits(times: pd.DataFrame) -> pd.DataFrame:
    """Return one row per backend and number of processes that has several sizes: the line through its times.

    Columns: backend, processes, sizes, alpha_s, hop_s (α over a ring's hops), beta_gb_per_s, residual, larger (the
    largest message over the smallest), growth (the same of their times), alpha_share (α in the time of the smallest)
    and largest_share (α in the time of the largest).
    """
    rows = []
    for (backend, processes), group in times.groupby(["backend", "processes"], sort=False):
        if len(group) < 2:
            continue
        group = group.sort_values("megabytes")
        share = bus_factor("all-reduce", processes)
        line = fit([share * _MB * size for size in group["megabytes"]], list(group["seconds"]))
        first, last = group.iloc[0], group.iloc[-1]
        rows.append(
            {
                "backend": backend,
                "processes": processes,
                "sizes": len(group),
                "alpha_s": line.alpha_s,
                "hop_s": line.alpha_s / hops("all-reduce", processes),
                "beta_gb_per_s": line.beta_gb_per_s,
                "residual": line.residual,
                "larger": last["megabytes"] / first["megabytes"],
                "growth": last["seconds"] / first["seconds"],
                "alpha_share": line.alpha_s / first["seconds"],
                "largest_share": line.alpha_s / last["seconds"],
            }
        )
    return like(pd.DataFrame(rows), times)
