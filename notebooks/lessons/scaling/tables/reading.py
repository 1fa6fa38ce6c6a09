"""A report's tables of ResNet-18 on more GPUs, recomputed."""

from __future__ import annotations

import pandas as pd

from labkit.provenance import like


def published_speedups(speedups: pd.DataFrame) -> pd.DataFrame:
    """Return resnet_speedup.csv with what its own seconds mean.

    `true_speedup`: one GPU's seconds over these, at the same batch per GPU. `efficiency`: that over the GPUs.
    `previous_batch`: the previous batch's seconds over these, at the same number of GPUs (NaN for the first batch).
    """
    table = speedups.sort_values(["batch_per_gpu", "gpus"], ignore_index=True)
    alone = table[table["gpus"] == 1].set_index("batch_per_gpu")["epoch_seconds"]
    table["true_speedup"] = table["batch_per_gpu"].map(alone) / table["epoch_seconds"]
    table["efficiency"] = table["true_speedup"] / table["gpus"]
    table["previous_batch"] = table.groupby("gpus")["epoch_seconds"].shift() / table["epoch_seconds"]
    return like(table, speedups, small=False)


def published_shares(parts: pd.DataFrame, speedups: pd.DataFrame) -> pd.DataFrame:
    """Return resnet_compute_communication.csv beside the epochs of the same settings.

    `unexplained_share`: the part of the epoch that is neither the printed computing nor the printed communication.
    """
    keys = ["batch_per_gpu", "gpus"]
    table = parts.merge(speedups[[*keys, "epoch_seconds"]], on=keys, how="left")
    known = table["compute_seconds"] + table["communication_seconds"]
    table["unexplained_share"] = 1 - known / table["epoch_seconds"]
    return like(table, parts, speedups, small=False)
