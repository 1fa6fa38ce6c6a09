"""Tables of lab 04 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

from typing import Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.training import EXPLAINED
from labkit.story.training import explain_equality as explain_equality
from labkit.story.training import explain_knobs as explain_knobs
from labkit.story.training import explain_sent as explain_sent
from labkit.story.words import about_tables, bullets, listed, resolved, say, together

_CLOSE = 0.1  # memory per sample within 10 % of what a report needs
_NEAREST = (  # a ZeRO stage, the strategy of torch that is nearest, and how the two shard
    ("zero1", "ddp", "DDP shards nothing; ZeRO-1 shards the optimizer states."),
    ("zero2", "fsdp_grad", "Both shard states and gradients; FSDP also shards the parameters between steps."),
    ("zero3", "fsdp_full", "Both shard parameters, gradients and states."),
)


@about_tables
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
    saved, basis = ddp[column] - full[column], "by the ledger" if column == "predicted" else "by the measured peaks"
    if saved <= 0:
        return f"**Full sharding saves nothing {basis}**: it needs {units.size(-saved * 2**20)} more than DDP."
    kept = ddp["activations"] / ddp["predicted"]
    activations = (
        f" {units.percent(kept)} of DDP's memory are activations, which no strategy shards." if kept > 0.5 else ""
    )
    size, share = units.size(saved * 2**20), units.percent(saved / ddp[column])
    return f"Full sharding saves {size} {basis}, which is {share} of DDP's memory.{activations}"


@about_tables
def explain_strategies(table: pd.DataFrame, apart: pd.DataFrame) -> Markdown:
    """Say which strategies differ from DDP beyond noise, and what DDP loses to communication."""
    sentences = [
        f"At batch {row.batch} DDP trains {units.number(row.samples_per_s)} samples/s, {_beside_ranks_alone(row)}."
        for row in table[table["strategy"] == "ddp"].itertuples()
        if pd.notna(row.efficiency)
    ]
    measured = apart[apart["percent"].notna()]
    clear = measured[measured["resolved"].astype(bool)]
    for (batch, faster), rows in clear.groupby(["batch", clear["percent"] > 0], sort=False):
        names, percents = [STRATEGY_NAMES[name] for name in rows["strategy"]], rows["percent"].abs()
        ends = dict.fromkeys(f"{percent:.1f}" for percent in (percents.min(), percents.max()))
        sentences.append(
            f"At batch {batch} {listed(names)} {'are' if len(names) > 1 else 'is'} {'faster' if faster else 'slower'} "
            f"than DDP beyond noise, by {' to '.join(ends)} %."
        )
    for beginning, rows in (
        ("**Within noise**, compared with DDP", measured[~measured["resolved"].astype(bool)]),
        ("Not measured", apart[apart["percent"].isna()]),
    ):
        names = [f"{STRATEGY_NAMES[row.strategy]} (batch {row.batch})" for row in rows.itertuples()]
        sentences.append(f"{beginning}: {listed(names)}." if names else "")
    return bullets(
        *sentences if any(sentences) else ["There is no DDP run to compare with."], small=fact(table, "small")
    )


def _beside_ranks_alone(row: Any) -> str:
    """Return DDP's rate as a share of that of ranks that exchange nothing; a share above 1 can only be noise."""
    share = f"{units.percent(row.efficiency)} of the rate of ranks that exchange nothing"
    if abs(row.efficiency - 1) <= row.spread_efficiency:
        return f"{share} (the difference is within noise)"
    return share if row.efficiency < 1 else f"{share} (above 100 % only noise between the runs can explain)"


@about_tables
def explain_accumulation(table: pd.DataFrame) -> Markdown:
    """Say what several micro-batches per step cost and save, and what an exchange after each of them costs."""
    sentences, trades = [], []
    for strategy, rows in table.groupby("strategy", sort=False):
        once = rows[rows["synced"] == "last"]
        whole, parts = (once.loc[once["micro_batches"].idxmin()], once.loc[once["micro_batches"].idxmax()])
        every = rows[rows["synced"] == "every"].iloc[0]
        kept, rate = parts["peak_mib"] / whole["peak_mib"], _compared(parts, whole, "the whole batch")
        memory = f", with {units.percent(kept)} of its peak memory" if pd.notna(kept) else ""
        trades.append(kept < 1 and _slower(parts, whole))
        sentences += [
            f"**{STRATEGY_NAMES[strategy]}**: {parts['micro_batches']} micro-batches and one exchange reach "
            f"{rate}{memory}.",
            f"**{STRATEGY_NAMES[strategy]}**: an exchange after every micro-batch sends "
            f"{every['gradients_mib'] / parts['gradients_mib']:.0f} times the gradients. It reaches "
            f"{_compared(every, parts, 'one exchange')}.",
        ]
    verdict = "**Accumulation saves memory and costs speed.** Use it where the whole batch does not fit."
    return bullets(verdict if all(trades) else None, *sentences, small=fact(table, "small"))


@about_tables
def explain_ledgers(held: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say what both ledgers say: memory, then collectives."""
    return together(explain_memory(held), explain_sent(sent))


@about_tables
def explain_speed(ladder: pd.DataFrame, as_reported: pd.DataFrame, printed_mb: dict[str, float]) -> Markdown:
    """Say what the knobs brought, then what dropout and attention product by product cost."""
    return together(explain_knobs(ladder), explain_per_sample(as_reported, printed_mb))


def _slower(row: pd.Series, base: pd.Series) -> bool:
    rates, spreads = ([one[name] for one in (row, base)] for name in ("samples_per_s", "spread_samples_per_s"))
    return rates[0] < rates[1] and resolved(*rates, *spreads)


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
        f"A sample adds {units.number(least)} MB with fused attention and no dropout. It adds {units.number(most)} MB "
        f"with plain attention and dropout ({source}).",
        f"With plain attention and dropout the model trains at {units.percent(slower)} of the rate that it has with "
        "fused attention and no dropout.",
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
    """Say how each ZeRO stage compares with the nearest strategy of torch, how both differ, and what a stage sends."""
    rows, sentences = table.set_index("strategy"), []
    for zero, other, difference in _NEAREST:
        if other not in rows.index:
            continue
        base = rows.loc[other]
        for row in table[table["strategy"] == zero].to_dict("records"):
            limits = {"zero": " with its limits at 0", "default": " with DeepSpeed's own limits"}.get(row["limits"], "")
            speed = _compared(pd.Series(row), base, STRATEGY_NAMES[other])
            memory = row["peak_mib"] / base["peak_mib"]
            held = f" and {units.percent(memory)} of its peak memory" if pd.notna(memory) else ""
            sentences.append(f"{STRATEGY_NAMES[zero]}{limits}: {speed}{held}. {difference}")
    stages = [stage for stage in ("zero1", "zero2") if stage in rows.index]
    if stages and "ddp" in rows.index:
        ratios = {stage: rows.loc[stage, "link_mib"] / rows.loc["ddp", "link_mib"] for stage in stages}
        more = {STRATEGY_NAMES[stage]: ratio for stage, ratio in ratios.items() if ratio > 1.1}
        if more:
            sentences.append(
                f"In this run {listed(more)} {'send' if len(more) > 1 else 'sends'} "
                f"{units.span(more.values(), units.times)} DDP's bytes. DeepSpeed all-reduces the gradients by "
                "default, and gathers the parameters after the update. A reduce-scatter instead of the all-reduce "
                "would do: with the all-gather it sends what DDP's all-reduce sends."
            )
        same = [STRATEGY_NAMES[stage] for stage in stages if STRATEGY_NAMES[stage] not in more]
        if same:
            sentences.append(f"{listed(same)} {'send' if len(same) > 1 else 'sends'} what DDP sends.")
    return bullets(*sentences or ["Only one library was measured."], small=fact(table, "small"))
