"""The published communication of a ResNet-18, recomputed: the bytes behind its bandwidth, and those of a training."""

from __future__ import annotations

import math

import pandas as pd

from labkit.provenance import made_from
from labkit.theory import resnet as shapes
from labkit.theory.cifar10 import TRAINING
from labkit.theory.shapes import configuration
from labkit.theory.sizes import GB, MB
from labkit.theory.traffic import Sent, through_a_link

_RESNET = configuration("resnet18-cifar")
PARAMETERS = shapes.resnet(_RESNET["width"], _RESNET["blocks"], _RESNET["num_labels"]).parameters


def published_bandwidth(resnet: pd.DataFrame) -> pd.DataFrame:
    """Return resnet_compute_communication.csv with the bytes that its bandwidth stands for, and those of a training.

    product_mb is bandwidth × time. steps is an epoch's; gradients_gb what each link of a ring carries in it. Facts:
    product_mb (the median) and product_spread (largest over smallest, less 1).
    """
    keep = ["batch_per_gpu", "gpus", "communication_seconds", "bandwidth_gb_per_second"]
    table = resnet[keep].copy()
    table["product_mb"] = table["bandwidth_gb_per_second"] * GB / MB * table["communication_seconds"]
    table["steps"] = [math.ceil(TRAINING / (row.batch_per_gpu * row.gpus)) for row in table.itertuples()]
    moved = [
        through_a_link([Sent("all-reduce", 1, 4 * PARAMETERS)], row.gpus) * row.steps for row in table.itertuples()
    ]
    table["gradients_gb"] = [size / GB for size in moved]
    product = table["product_mb"]
    spread = product.max() / product.min() - 1
    return made_from(
        table.reset_index(drop=True), resnet, small=False, product_mb=product.median(), product_spread=spread
    )
