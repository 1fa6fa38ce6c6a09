"""ZeRO beside FSDP: rates, memory and traffic of one launch; and what differs between the two libraries."""

from __future__ import annotations

import pandas as pd

from labkit.labs.ddp_fsdp.tables.strategies import throughput
from labkit.tables.ledgers import MIB
from labkit.tables.rows import entries
from labkit.theory.traffic import Sent, through_a_link

LIKE = {"zero1": "ddp", "zero2": "fsdp_grad", "zero3": "fsdp_full"}  # what shards the same, or next to it


def zero(run) -> pd.DataFrame:
    """Give, a strategy: samples_per_s with spread, peak_mib (fullest rank), calls a step and MiB through a link."""
    table = throughput(run)[["strategy", "samples_per_s", "spread_samples_per_s", "count"]]
    held = entries(run, "memory").reindex(columns=["strategy", "peak_mib"])
    table["peak_mib"] = table["strategy"].map(held.groupby("strategy")["peak_mib"].max())
    rows = entries(run, "traffic")
    rows = rows[rows["rank"] == 0]
    sent = rows[["collective", "calls", "sent_bytes"]].itertuples(index=False)
    each = [through_a_link([Sent(*one)], run.plan.gpus) / MIB for one in sent]
    link = pd.Series(each, rows.index, dtype=float).groupby(rows["strategy"]).sum()
    table["link_mib"] = table["strategy"].map(link)
    table["calls"] = table["strategy"].map(rows.groupby("strategy")["calls"].sum())
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


def features() -> pd.DataFrame:
    """Give what FSDP2 and ZeRO do alike and otherwise, from their documentation and DeepSpeed 0.19's source."""
    rows = [
        ("sharded", "parameters, gradients, states", "states", "+ gradients", "+ parameters"),
        ("a shard is", "some rows of every parameter", "part of one flat buffer", "the same", "part of each, flat"),
        ("gradients go by", "reduce-scatter", "all-reduce", "all-reduce", "reduce-scatter"),
        ("parameters come by", "all-gather a block", "one all-gather a step", "the same", "all-gather a module"),
        ("backward and step", "your own loop", "its engine's", "its engine's", "its engine's"),
        ("to CPU or NVMe", "CPU", "states to CPU", "states to CPU", "both, either place"),
        ("bfloat16", "gathered from float32 shards", "float32 master shards", "the same", "the same"),
    ]
    return pd.DataFrame(rows, columns=["", "FSDP2", "ZeRO-1", "ZeRO-2", "ZeRO-3"]).set_index("")
