"""Tables of lab 04 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.training import EXPLAINED
from labkit.story.training import explain_equality as explain_equality
from labkit.story.training import explain_knobs as explain_knobs
from labkit.story.training import explain_sent as explain_sent
from labkit.story.words import listed, say


def explain_memory(table: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, what a rank's memory is mostly, and what full sharding saves."""
    sentences = []
    worst = table.loc[table["unexplained_share"].abs().idxmax()] if table["peak"].notna().any() else None
    if worst is None:
        error = table["counted_error"].max()
        sentences.append(
            f"A CPU has no allocator to ask. Parameters, states and activations that the ranks counted are the "
            f"formulas', to {units.percent(error)}."
            if error < 0.01
            else f"**What the ranks counted differs from the formulas by up to {units.percent(error)}.**"
        )
    else:
        share = abs(worst["unexplained_share"])
        where = f"{STRATEGY_NAMES[worst['strategy']]}, batch {worst['batch']}"
        sentences.append(
            f"The ledgers explain every peak to within {units.percent(share)} ({where})."
            if share <= EXPLAINED
            else f"**{units.percent(share)} of a peak is not explained** ({where})."
        )
    rows = table[table["batch"] == table["batch"].max()].set_index("strategy")
    if {"ddp", "fsdp_full"} <= set(rows.index):
        ddp, full = rows.loc["ddp"], rows.loc["fsdp_full"]
        measured = ddp["peak"] - full["peak"]
        saved = ddp["predicted"] - full["predicted"] if pd.isna(measured) else measured
        whole = ddp["predicted"] if pd.isna(measured) else ddp["peak"]
        kind = "should save" if pd.isna(measured) else "saves"
        kept = ddp["activations"] / ddp["predicted"]
        sentences.append(
            f"Full sharding {kind} {units.size(saved * 2**20)}, {units.percent(saved / whole)}."
            if saved > 0
            else f"**Full sharding saves nothing**: it takes {units.size(-saved * 2**20)} more than DDP."
        )
        if kept > 0.5 and saved > 0:
            sentences.append(
                f"**It cannot save much: {units.percent(kept)} of the memory are activations**, and none of "
                "these strategies shards those."
            )
    return say(*sentences, small=fact(table, "small"))


def explain_strategies(table: pd.DataFrame, apart: pd.DataFrame) -> Markdown:
    """Say which strategies are told apart from DDP, by how much, and what DDP loses to communication."""
    sentences = []
    for row in table[table["strategy"] == "ddp"].itertuples():
        if pd.notna(row.efficiency):
            sentences.append(
                f"DDP, batch {row.batch}: {units.number(row.samples_per_s)} samples/s, "
                f"{units.percent(row.efficiency)} of ranks that exchange nothing."
            )
    told = [
        f"{STRATEGY_NAMES[r.strategy]} by {r.percent:+.1f} % (batch {r.batch})"
        for r in apart.itertuples()
        if r.resolved
    ]
    not_told, missing = (
        [f"{STRATEGY_NAMES[r.strategy]} (batch {r.batch})" for r in apart[some].itertuples() if not r.resolved]
        for some in (apart["percent"].notna(), apart["percent"].isna())
    )
    if told:
        sentences.append(f"Told apart from DDP: {listed(told)}.")
    if not_told:
        sentences.append(f"**Not resolved by these data**: {listed(not_told)}.")
    if missing:
        sentences.append(f"Not measured: {listed(missing)}.")
    return say(*sentences or ["There is no DDP here to compare with."], small=fact(table, "small"))


def explain_zero(table: pd.DataFrame) -> Markdown:
    """Say which of ZeRO and FSDP is faster and leaner at the same sharding, and what ZeRO-1 and 2 send."""
    rows, sentences = table.set_index("strategy"), []
    for zero, fsdp in (("zero2", "fsdp_grad"), ("zero3", "fsdp_full")):
        if not {zero, fsdp} <= set(rows.index):
            continue
        a, b = rows.loc[zero], rows.loc[fsdp]
        clear = abs(a["samples_per_s"] - b["samples_per_s"]) > a["spread_samples_per_s"] + b["spread_samples_per_s"]
        ratio = f"{units.number(a['samples_per_s'] / b['samples_per_s'])}×"
        speed = f"{ratio} its rate" if clear else "a rate not told apart from it by these data"
        memory = (
            f" and {units.number(a['peak_mib'] / b['peak_mib'])}× its peak memory" if pd.notna(a["peak_mib"]) else ""
        )
        sentences.append(f"{STRATEGY_NAMES[zero]} beside {STRATEGY_NAMES[fsdp]}: {speed}{memory}.")
    if {"zero2", "ddp"} <= set(rows.index):
        ratio = rows.loc["zero2", "link_mib"] / rows.loc["ddp", "link_mib"]
        sentences.append(
            f"ZeRO-2 sends {units.times(ratio)} DDP's bytes: **it all-reduces gradients of which it keeps a part**, "
            "and gathers parameters after that."
            if ratio > 1.1
            else "ZeRO-2 sends what DDP sends."
        )
    return say(*sentences or ["Only one library was measured."], small=fact(table, "small"))
