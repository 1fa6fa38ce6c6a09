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
from labkit.story.words import listed, resolved, say, together

_CLOSE = 0.1  # memory per sample within 10 % of what a report needs


def explain_memory(table: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, and what full sharding saves of a rank's memory."""
    small = fact(table, "small")
    if table["peak"].isna().all():
        error = table["counted_error"].max()
        counted = (
            f"The parameters, states and activations that the ranks counted agree with the formulas to within "
            f"{units.percent(error)}. There is no allocator's peak to compare with: this run was on CPUs."
            if error < 0.01
            else f"**What the ranks counted differs from the formulas by up to {units.percent(error)}.**"
        )
        return say(counted, _saving(table, "predicted"), small=small)
    worst = table.loc[table["unexplained_share"].abs().idxmax()]
    share, where = abs(worst["unexplained_share"]), f"{STRATEGY_NAMES[worst['strategy']]}, batch {worst['batch']}"
    explained = (
        f"**The ledger explains every peak.** The largest unexplained share is {units.percent(share)} ({where})."
        if share <= EXPLAINED
        else f"**{units.percent(share)} of a peak is not explained** ({where})."
    )
    return say(explained, _saving(table, "peak"), small=small)


def _saving(table: pd.DataFrame, column: str) -> str | None:
    """Return what full sharding saves beside DDP at the largest batch, by the ledger or by the measured peak."""
    rows = table[table["batch"] == table["batch"].max()].set_index("strategy")
    if not {"ddp", "fsdp_full"} <= set(rows.index):
        return None
    ddp, full = rows.loc["ddp"], rows.loc["fsdp_full"]
    saved, by_ledger = ddp[column] - full[column], " by the ledger" if column == "predicted" else ""
    if saved <= 0:
        return f"**Full sharding saves nothing{by_ledger}**: it needs {units.size(-saved * 2**20)} more than DDP."
    kept = ddp["activations"] / ddp["predicted"]
    activations = (
        f" {units.percent(kept)} of DDP's memory are activations, which no strategy shards." if kept > 0.5 else ""
    )
    size, share = units.size(saved * 2**20), units.percent(saved / ddp[column])
    return f"Full sharding saves {size}{by_ledger}, which is {share} of DDP's memory.{activations}"


def explain_strategies(table: pd.DataFrame, apart: pd.DataFrame) -> Markdown:
    """Say which strategies differ from DDP beyond noise, and what DDP loses to communication."""
    sentences = [
        f"At batch {row.batch} DDP trains {units.number(row.samples_per_s)} samples/s: {units.percent(row.efficiency)} "
        "of the rate of ranks that exchange nothing."
        for row in table[table["strategy"] == "ddp"].itertuples()
        if pd.notna(row.efficiency)
    ]
    measured = apart[apart["percent"].notna()]
    for clear, rows in measured[measured["resolved"].astype(bool)].groupby("batch", sort=False):
        differences = [
            f"{STRATEGY_NAMES[row.strategy]} is {abs(row.percent):.1f} % {'faster' if row.percent > 0 else 'slower'}"
            for row in rows.itertuples()
        ]
        sentences.append(f"Beyond noise at batch {clear}, compared with DDP: {listed(differences)}.")
    for beginning, rows in (
        ("**Within noise**, compared with DDP", measured[~measured["resolved"].astype(bool)]),
        ("Not measured", apart[apart["percent"].isna()]),
    ):
        names = [f"{STRATEGY_NAMES[row.strategy]} (batch {row.batch})" for row in rows.itertuples()]
        sentences.append(f"{beginning}: {listed(names)}." if names else "")
    return say(*sentences if any(sentences) else ["There is no DDP run to compare with."], small=fact(table, "small"))


def explain_accumulation(table: pd.DataFrame) -> Markdown:
    """Say what several micro-batches per step cost, and what one exchange instead of several saves."""
    sentences = []
    for strategy, rows in table.groupby("strategy", sort=False):
        once = rows[rows["synced"] == "last"]
        whole, parts = (once.loc[once["micro_batches"].idxmin()], once.loc[once["micro_batches"].idxmax()])
        every = rows[rows["synced"] == "every"].iloc[0]
        saved, price = parts["peak_mib"] / whole["peak_mib"], _compared(parts, whole, "the whole batch at once")
        memory = f" and {units.percent(saved)} of its peak memory" if pd.notna(saved) else ""
        sentences.append(
            f"**{STRATEGY_NAMES[strategy]}**, {parts['micro_batches']} micro-batches and one exchange: {price}{memory}."
            f" Exchanging after each of them sends {every['gradients_mib'] / parts['gradients_mib']:.0f} times the "
            f"gradients: {_compared(every, parts, 'one exchange')}."
        )
    return say(*sentences, small=fact(table, "small"))


def explain_ledgers(held: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say what both ledgers say: memory, then collectives."""
    return together(explain_memory(held), explain_sent(sent))


def explain_speed(ladder: pd.DataFrame, as_reported: pd.DataFrame, printed_mb: dict[str, float]) -> Markdown:
    """Say what the knobs brought, then what dropout and attention product by product cost."""
    return together(explain_knobs(ladder), explain_per_sample(as_reported, printed_mb))


def _compared(row: pd.Series, base: pd.Series, name: str) -> str:
    ratio = row["samples_per_s"] / base["samples_per_s"]
    spreads = row["spread_samples_per_s"], base["spread_samples_per_s"]
    if not resolved(row["samples_per_s"], base["samples_per_s"], *spreads):
        return f"the rate of {name}, within noise"
    return f"{units.percent(ratio)} of the rate of {name}"


def explain_per_sample(table: pd.DataFrame, printed_mb: dict[str, float]) -> Markdown:
    """Say what dropout and attention product by product add per sample, and whether that is what the reports need.

    `printed_mb` is what a sample adds in each report, by the report's name.
    """
    rows = table.set_index(["attention", table["dropout"] > 0])
    column = "peak_mb" if table["peak_mb"].notna().all() else "formula_mb"
    least, most = rows.loc[("fused", False), column], rows.loc[("plain", True), column]
    source = "by the measured peak" if column == "peak_mb" else "by formula"
    slower = rows.loc[("plain", True), "samples_per_s"] / rows.loc[("fused", False), "samples_per_s"]
    sentences = [
        f"A sample adds {units.number(least)} MB with fused attention and no dropout, {units.number(most)} MB as the "
        f"reports print the model ({source}).",
        f"The model as printed trains at {units.percent(slower)} of the rate.",
    ]
    if not fact(table, "small"):
        needed = units.span(printed_mb.values(), units.number)
        near = [
            f"{attention} attention {'with' if dropped else 'without'} dropout"
            for (attention, dropped), value in rows[column].items()
            if all(abs(value / printed - 1) <= _CLOSE for printed in printed_mb.values())
        ]
        sentences.append(
            f"The reports' {needed} MB per sample are those of {listed(near)}."
            if near
            else f"**No combination comes within 10 % of the reports' {needed} MB per sample.**"
        )
    return say(*sentences, small=fact(table, "small"))


def explain_zero(table: pd.DataFrame) -> Markdown:
    """Say how each ZeRO stage compares with what shards the same in torch, and what its limits and sends are."""
    rows, sentences = table.set_index("strategy"), []
    for zero, other in (("zero1", "ddp"), ("zero2", "fsdp_grad"), ("zero3", "fsdp_full")):
        if other not in rows.index:
            continue
        base = rows.loc[other]
        for row in table[table["strategy"] == zero].to_dict("records"):
            limits = {"zero": " with its limits at 0", "default": " with DeepSpeed's own limits"}.get(row["limits"], "")
            speed = _compared(pd.Series(row), base, STRATEGY_NAMES[other])
            memory = row["peak_mib"] / base["peak_mib"]
            held = f" and {units.percent(memory)} of its peak memory" if pd.notna(memory) else ""
            sentences.append(f"{STRATEGY_NAMES[zero]}{limits}: {speed}{held}.")
    if {"zero2", "ddp"} <= set(rows.index):
        ratio = rows.loc["zero2", "link_mib"] / rows.loc["ddp", "link_mib"]
        sentences.append(
            f"In this run ZeRO-2 sends {units.times(ratio)} DDP's bytes: DeepSpeed all-reduces the gradients, although "
            "a rank keeps only its part, and gathers the parameters after the update. The method itself needs only a "
            "reduce-scatter: then it sends what DDP sends."
            if ratio > 1.1
            else "ZeRO-2 sends what DDP sends."
        )
    return say(*sentences or ["Only one library was measured."], small=fact(table, "small"))
