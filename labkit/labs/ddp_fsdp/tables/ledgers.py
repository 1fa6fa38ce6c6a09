"""Rows → the two ledgers: bytes held, and bytes sent, each beside its formula."""

from __future__ import annotations

import pandas as pd

from labkit.tables import ledgers
from labkit.tables.ledgers import BY, MIB
from labkit.theory.memory import ITEMS, bert_activations, ledger
from labkit.theory.shapes import Model, bert
from labkit.theory.traffic import through_a_link, traffic


def forecast(plan, row) -> dict[str, int]:
    """Give the bytes that a rank of a lab 04 point should hold at the fullest moment (float32 only), by item."""
    share = row["batch"] // row["ranks"]
    kept = bert_activations(plan.layers, plan.hidden, plan.heads, share, plan.sequence)
    return ledger(plan.model, row["strategy"], row["ranks"], kept)


def memory(run) -> pd.DataFrame:
    """Return the memory ledger of BERT, a row a strategy and batch (labkit.tables.ledgers.memory has the columns)."""
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
    """Give what theory says a rank holds and sends, a row a strategy: MiB by item, and MiB through its link a step."""
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
    source = f"theory: BERT-base, {ranks} ranks, {batch} samples of {sequence} tokens a rank, float32, AdamW"
    table.attrs.update(source=source, small=False, ranks=ranks)
    return table


def wrappings(savings: pd.DataFrame, ranks: int = 4) -> pd.DataFrame:
    """Give, a way of wrapping: what it should save over DDP in MiB, what a report's table prints, and how far apart.

    `savings` is the published table's; activations, the same on both sides, cancel. The reports' DDP keeps its buckets
    beside the gradients that are made and dropped in a step, as ours keeps them as the gradients.
    """
    held = holdings(ranks).set_index("strategy")["predicted"]
    printed = savings["saving_mib"].median()
    table = pd.DataFrame({"strategy": [name for name in held.index if name.startswith("fsdp")]})
    table["predicted_mib"] = held["ddp"] - held[table["strategy"]].to_numpy()
    table["printed_mib"] = printed
    table["apart_mib"] = table["printed_mib"] - table["predicted_mib"]
    table.attrs.update(source=f"{savings.attrs['source']} · theory", small=False, ranks=ranks)
    return table
