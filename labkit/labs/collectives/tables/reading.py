"""The published timings re-computed: what a link allows, what a line finds in them, and what a bandwidth is made of."""

from __future__ import annotations

import math

import pandas as pd

from labkit.labs.collectives.theory import GB, bus_factor, bus_gb_per_s, hops
from labkit.node import limits
from labkit.provenance import fact, like
from labkit.theory.lines import fit

_GPU = limits.spec("Tesla V100-SXM2-32GB")  # of all V100s the ones with NVLink
_LIMIT = limits.ring_bus_limit_gb_per_s(_GPU)
_LOW = 0.1
_MB = 1e6
_IMAGES, _PIXELS = 50_000, 32 * 32 * 3  # CIFAR-10's for training
_ON_DISK = 31_035_704 + 31_035_320 + 31_035_999 + 31_035_696 + 31_035_623 + 31_035_526 + 158 + 88  # its unpacked files
PARAMETERS = 11_173_962  # of ResNet-18 for 32 × 32 pixels and 10 classes


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


def published_bandwidth(resnet: pd.DataFrame) -> pd.DataFrame:
    """Return resnet_compute_communication.csv with the bytes that its bandwidth stands for, and those of a training.

    product_mb is bandwidth × time. steps is an epoch's; gradients_gb what each link of a ring carries in it, and
    needed_gb_per_s the rate at which it would do so in the printed time; step_us the printed time a step. Facts:
    product_mb (the median) and product_spread (largest over smallest, less 1).
    """
    keep = ["batch_per_gpu", "gpus", "communication_seconds", "bandwidth_gb_per_second"]
    table = resnet[keep].copy()
    table["product_mb"] = table["bandwidth_gb_per_second"] * GB / _MB * table["communication_seconds"]
    table["steps"] = [math.ceil(_IMAGES / (row.batch_per_gpu * row.gpus)) for row in table.itertuples()]
    moved = [bus_factor("all-reduce", row.gpus) * 4 * PARAMETERS * row.steps for row in table.itertuples()]
    table["gradients_gb"] = [size / GB for size in moved]
    table["needed_gb_per_s"] = table["gradients_gb"] / table["communication_seconds"]
    table["step_us"] = 1e6 * table["communication_seconds"] / table["steps"]
    product = table["product_mb"]
    spread = product.max() / product.min() - 1
    return like(table.reset_index(drop=True), resnet, small=False, product_mb=product.median(), product_spread=spread)


def candidates(bandwidth: pd.DataFrame) -> pd.DataFrame:
    """Return what the constant product of `published_bandwidth` could be: what, megabytes, off (relative) and fits.

    fits: rounded to whole megabytes, as the product is, the two are equal.
    """
    product = fact(bandwidth, "product_mb")
    epochs = bandwidth["gradients_gb"] * GB / _MB
    sizes = {
        "CIFAR-10's files on disk, in MiB": _ON_DISK / 2**20,
        "CIFAR-10's files on disk, in MB": _ON_DISK / _MB,
        "its training images, a byte a value, in MB": _IMAGES * _PIXELS / _MB,
        "ResNet-18's gradients, once, in MB": 4 * PARAMETERS / _MB,
        "an epoch's gradients, the fewest, in MB": epochs.min(),
        "an epoch's gradients, the most, in MB": epochs.max(),
    }
    table = pd.DataFrame({"what": list(sizes), "megabytes": list(sizes.values())})
    table["off"] = table["megabytes"] / product - 1
    table["fits"] = table["megabytes"].round() == round(product)
    return like(table, bandwidth)
