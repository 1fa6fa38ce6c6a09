"""The published communication of a ResNet-18, recomputed: the bytes behind its bandwidth, and those of a training."""

from __future__ import annotations

import math

import pandas as pd

from labkit.provenance import fact, like
from labkit.theory import resnet as shapes
from labkit.theory.configurations import configuration
from labkit.theory.images import PIXELS, TRAINING
from labkit.theory.lines import GB
from labkit.theory.traffic import Sent, through_a_link

_MB = 1e6
_ON_DISK = (
    31_035_704 + 31_035_320 + 31_035_999 + 31_035_696 + 31_035_623 + 31_035_526 + 158 + 88
)  # CIFAR-10, for Python
_RESNET = configuration("resnet18-cifar")
PARAMETERS = shapes.resnet(_RESNET["width"], _RESNET["blocks"], _RESNET["num_labels"]).parameters


def published_bandwidth(resnet: pd.DataFrame) -> pd.DataFrame:
    """Return resnet_compute_communication.csv with the bytes that its bandwidth stands for, and those of a training.

    product_mb is bandwidth × time. steps is an epoch's; gradients_gb what each link of a ring carries in it, and
    needed_gb_per_s the rate at which it would do so in the printed time; step_us the printed time a step. Facts:
    product_mb (the median) and product_spread (largest over smallest, less 1).
    """
    keep = ["batch_per_gpu", "gpus", "communication_seconds", "bandwidth_gb_per_second"]
    table = resnet[keep].copy()
    table["product_mb"] = table["bandwidth_gb_per_second"] * GB / _MB * table["communication_seconds"]
    table["steps"] = [math.ceil(TRAINING / (row.batch_per_gpu * row.gpus)) for row in table.itertuples()]
    moved = [
        through_a_link([Sent("all-reduce", 1, 4 * PARAMETERS)], row.gpus) * row.steps for row in table.itertuples()
    ]
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
        "its training images, a byte a value, in MB": TRAINING * PIXELS / _MB,
        "ResNet-18's gradients, once, in MB": 4 * PARAMETERS / _MB,
        "an epoch's gradients, the fewest, in MB": epochs.min(),
        "an epoch's gradients, the most, in MB": epochs.max(),
    }
    table = pd.DataFrame({"what": list(sizes), "megabytes": list(sizes.values())})
    table["off"] = table["megabytes"] / product - 1
    table["fits"] = table["megabytes"].round() == round(product)
    return like(table, bandwidth)
