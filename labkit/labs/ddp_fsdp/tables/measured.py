"""Rows of lab 04 → tables: rates, both ledgers, trials, ZeRO beside FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import of_run, of_source, sources
from labkit.tables import ledgers
from labkit.tables.equality import equality as equality
from labkit.tables.ledgers import BY, MIB
from labkit.tables.ledgers import sent as sent
from labkit.tables.rates import differences as differences
from labkit.tables.rates import ladder as ladder
from labkit.tables.rates import rates, with_efficiency
from labkit.tables.rows import entries
from labkit.theory.memory import ITEMS, bert_activations, ledger
from labkit.theory.shapes import Model, bert
from labkit.theory.traffic import Sent, through_a_link, traffic

if TYPE_CHECKING:
    from labkit.engine.run import Run
    from labkit.labs.ddp_fsdp.plan import Bert

_SETTING = ["strategy", "ranks", "batch", "precision", "fused", "compiled"]


def throughput(run: Run) -> pd.DataFrame:
    """Return one row per setting: its knobs, step_ms (median), spread, count, status, samples_per_s, spread, seed_std.

    `seed_std` is the standard deviation over the seeds' medians, as reports print it; a step lasts as long as its
    slowest rank. "single" exchanges nothing: its ranks train side by side, `batch` samples together. `efficiency` is
    the rate over that of "single" at the same setting; `spread_efficiency` is the half-spread of both together.
    """
    return with_efficiency(rates(run, _SETTING), "samples_per_s", ["batch", "precision"])


def forecast(plan: Bert, row: pd.Series | dict) -> dict[str, int]:
    """Return the bytes that a rank of a lab 04 point should hold at the fullest moment (float32 only), by item."""
    share = row["batch"] // row["ranks"]
    kept = bert_activations(plan.layers, plan.hidden, plan.heads, share, plan.sequence)
    return ledger(plan.model, row["strategy"], row["ranks"], kept)


def memory(run: Run) -> pd.DataFrame:
    """Return the memory ledger of BERT, a row per strategy and batch (labkit.tables.ledgers.memory has the columns)."""
    return ledgers.memory(run, BY, forecast)


def holdings(
    ranks: int = 4,
    hidden: int = 768,
    layers: int = 12,
    vocabulary: int = 30522,
    batch: int = 16,
    sequence: int = 512,
    heads: int = 12,
) -> pd.DataFrame:
    """Return by theory what a rank holds and sends, a row per strategy: MiB by item, MiB through its link per step."""
    model: Model = bert(hidden, layers, vocabulary, 512)
    kept = bert_activations(layers, hidden, heads, batch, sequence)
    rows = []
    for strategy in ("single", "ddp", "fsdp_root", "fsdp_grad", "fsdp_full"):
        items = ledger(model, strategy, ranks, kept)
        link = through_a_link(traffic(model, strategy, ranks), ranks)
        rows.append(
            {
                "strategy": strategy,
                **{item: items[item] / MIB for item in ITEMS},
                "predicted": sum(items.values()) / MIB,
                "link_mib": link / MIB,
            }
        )
    table = pd.DataFrame(rows)
    source = f"theory: BERT-base, {ranks} ranks, {batch} samples of {sequence} tokens per rank, float32, AdamW"
    return of_source(table, source, ranks=ranks)


def wrappings(savings: pd.DataFrame, ranks: int = 4) -> pd.DataFrame:
    """Return per way of wrapping: what it should save over DDP in MiB, what a report's table prints, and how far apart.

    `savings` is the published table's; activations, the same on both sides, cancel. The reports' DDP keeps its buckets
    beside the gradients that are made and dropped in a step, as ours keeps them as the gradients.
    """
    held = holdings(ranks).set_index("strategy")["predicted"]
    printed = savings["saving_mib"].median()
    table = pd.DataFrame({"strategy": [name for name in held.index if name.startswith("fsdp")]})
    table["predicted_mib"] = held["ddp"] - held[table["strategy"]].to_numpy()
    table["printed_mib"] = printed
    table["apart_mib"] = table["printed_mib"] - table["predicted_mib"]
    return of_source(table, f"{sources(savings)} · theory", ranks=ranks)


def symptoms(run: Run) -> pd.DataFrame:
    """Return per variant: distinct samples and repeated order (shares), update_ratio, update_error, and its error."""
    columns = ["variant", "ranks", "distinct", "repeated", "update_ratio", "update_error", "raised"]
    rows = entries(run, "trial").reindex(columns=["rank", *columns])
    table = rows[rows["rank"] == 0][columns].reset_index(drop=True)
    table["raised"] = table["raised"].fillna("")
    return of_run(table, run)


def zero(run: Run) -> pd.DataFrame:
    """Return per strategy: samples_per_s, spread, peak_mib (fullest rank), calls per step and MiB through a link."""
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
    return of_run(table, run)


def features() -> pd.DataFrame:
    """Return what FSDP2 and ZeRO do alike and differently, from their documentation and DeepSpeed 0.19's source."""
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
