"""Rows → the two ledgers: bytes held, and bytes sent, each beside its formula."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from labkit.labs.ddp_fsdp.theory.memory import ITEMS, bert_activations, ledger
from labkit.labs.ddp_fsdp.theory.shapes import Model, bert
from labkit.labs.ddp_fsdp.theory.traffic import through_a_link, traffic

MIB = 2**20
COUNTED = ["parameters", "gradients", "optimizer", "activations"]
BY = ["strategy", "batch"]


def forecast(plan, row) -> dict[str, int]:
    """Give the bytes that a rank of a lab 04 point should hold at the fullest moment (float32 only), by item."""
    share = row["batch"] // row["ranks"]
    kept = bert_activations(plan.layers, plan.hidden, plan.heads, share, plan.sequence)
    return ledger(plan.model, row["strategy"], row["ranks"], kept)


def entries(run, entry: str) -> pd.DataFrame:
    """Give the rows of one kind, such as "memory", for all ranks."""
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, "entry"])])
    return rows[rows["entry"] == entry]


def memory(run, by: list[str] = BY, predict: Callable = forecast) -> pd.DataFrame:
    """Give, a setting: MiB predicted for each item, their sum, the allocator's peak and reserved, what is unexplained.

    Measured is the fullest rank's. `unexplained_share` is of the peak. On a CPU there is no allocator to ask: the
    peak is NaN, and `counted_error` alone checks the prediction: the largest relative difference between predicted
    parameters, states and activations and those that were counted in the rank's tensors.
    """
    rows = entries(run, "memory").reindex(columns=[*dict.fromkeys([*run.rows, "peak_mib", "reserved_mib"])])
    parts = []
    for setting, group in rows.groupby(by, sort=False):
        fullest = group.sort_values("peak_mib", kind="stable").iloc[-1] if group["peak_mib"].notna().any() else (
            group.iloc[0])  # fmt: skip
        items = predict(run.plan, fullest)
        row = dict(zip(by, setting, strict=True)) | {item: items[item] / MIB for item in ITEMS}
        row["predicted"] = sum(items.values()) / MIB
        row |= {"peak": fullest["peak_mib"], "reserved": fullest["reserved_mib"]}
        row["counted_error"] = max(abs(fullest.get(f"{item}_mib", float("nan")) * MIB / items[item] - 1)
                                   for item in ("parameters", "optimizer", "activations") if items[item])  # fmt: skip
        parts.append(row)
    columns = [*by, *ITEMS, "predicted", "peak", "reserved", "counted_error"]
    table = pd.DataFrame(parts, columns=columns)
    table["unexplained"] = table["peak"] - table["predicted"]
    table["unexplained_share"] = table["unexplained"] / table["peak"]
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


def sent(run, by: list[str] = BY, model: Callable = lambda plan, row: plan.model, **knobs) -> pd.DataFrame:
    """Give, a setting and collective: calls and MiB a step by formula and as counted, and whether they are equal.

    `knobs` are what `traffic` takes besides strategy and ranks: a number, the column that holds it, or how to tell it
    from a row.
    """
    rows, parts = entries(run, "traffic"), []
    for setting, group in rows[rows["rank"] == 0].groupby(by, sort=False):
        one = group.iloc[0]
        more = {name: _knob(one, how) for name, how in knobs.items()}
        formula = {
            each.collective: each for each in traffic(model(run.plan, one), one["strategy"], one["ranks"], **more)
        }
        counted = group.set_index("collective")
        for name in dict.fromkeys([*formula, *counted.index]):
            due, was = formula.get(name), counted.loc[name] if name in counted.index else None
            calls, size = (due.calls, due.bytes) if due else (0, 0)
            n, b = (int(was["calls"]), int(was["sent_bytes"])) if was is not None else (0, 0)
            parts.append(dict(zip(by, setting, strict=True)) | {
                "collective": name, "calls": calls, "counted_calls": n, "mib": size / MIB, "counted_mib": b / MIB,
                "equal": (calls, size) == (n, b)})  # fmt: skip
    columns = [*by, "collective", "calls", "counted_calls", "mib", "counted_mib", "equal"]
    table = pd.DataFrame(parts, columns=columns)
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


def _knob(row: pd.Series, how) -> int:
    if callable(how):
        return how(row)
    return int(row[how]) if isinstance(how, str) else how


def holdings(ranks: int = 4, hidden: int = 768, layers: int = 12, vocabulary: int = 30522, batch: int = 16,
             sequence: int = 512, heads: int = 12) -> pd.DataFrame:  # fmt: skip
    """Give what theory says a rank holds and sends, a row a strategy: MiB by item, and MiB through its link a step."""
    model: Model = bert(hidden, layers, vocabulary, 512)
    kept = bert_activations(layers, hidden, heads, batch, sequence)
    rows = []
    for strategy in ("single", "ddp", "fsdp_root", "fsdp_grad", "fsdp_full"):
        items = ledger(model, strategy, ranks, kept)
        link = through_a_link(traffic(model, strategy, ranks), ranks)
        rows.append({"strategy": strategy, **{item: items[item] / MIB for item in ITEMS},
                     "predicted": sum(items.values()) / MIB, "link_mib": link / MIB})  # fmt: skip
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
