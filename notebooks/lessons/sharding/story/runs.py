"""Tables of lab 05 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

from typing import Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.training import EXPLAINED, explain_knobs, explain_sent, host_bound
from labkit.story.training import explain_equality as explain_equality
from labkit.story.words import about_tables, listed, resolved, say, together

_GOAL = 0.95  # of a GPU alone
_AGREE = 3.0  # points of overlap
_NOTABLE = 0.05  # of the communication
_ROUNDING = 1e-3  # of a loss: different orders of the same sums


@about_tables
def explain_scaling(table: pd.DataFrame) -> Markdown:
    """Say which strategies keep 95 % of a GPU's rate, which do not, and what the smaller batch costs.

    Where the goal lies inside the spread, it is open whether it is reached.
    """
    large = table[(table["load"] == "large") & (table["strategy"] != "single") & table["efficiency"].notna()]
    spread = large["spread_efficiency"].fillna(0.0)
    reached, missed = large["efficiency"] - spread >= _GOAL, large["efficiency"] + spread < _GOAL
    good, poor, unclear = (
        [f"{STRATEGY_NAMES[r.strategy]} on {r.ranks} GPUs ({_kept(r, with_spread)})" for r in rows.itertuples()]
        for rows, with_spread in ((large[reached], False), (large[missed], False), (large[~reached & ~missed], True))
    )
    sentences = [
        f"**At least 95 % of one GPU's rate per GPU**, with the large batch: {listed(good)}." if good else None
    ]
    sentences += [f"**Less than 95 %**: {listed(poor)}." if poor else None]
    sentences += [f"**Open**, because 95 % lies inside the noise: {listed(unclear)}." if unclear else None]
    shared = table[(table["load"] == "shared out") & (table["strategy"] != "single")]
    for row in shared.loc[shared["efficiency"].nsmallest(1).index].itertuples():
        same = large[(large["strategy"] == row.strategy) & (large["ranks"] == row.ranks)]["efficiency"]
        if len(same) and row.efficiency < same.iloc[0] - 0.02:
            sentences.append(
                f"With the report's batch a GPU computes less between two exchanges: {STRATEGY_NAMES[row.strategy]} "
                f"keeps only {units.percent(row.efficiency)}."
            )
    if table["mfu"].notna().any():
        best = table.loc[table["mfu"].idxmax()]
        sentences.append(f"The best MFU is {units.percent(best['mfu'])} ({STRATEGY_NAMES[best['strategy']]}).")
    return say(*sentences, small=fact(table, "small"))


def _kept(row: Any, with_spread: bool) -> str:
    """Return the share of a GPU's rate that is kept; what misses the goal is never rounded onto it."""
    if with_spread:
        return f"{100 * row.efficiency:.1f} ± {100 * row.spread_efficiency:.1f} %"
    share = units.percent(row.efficiency)
    return f"{100 * row.efficiency:.2f} %" if row.efficiency < _GOAL and share == units.percent(_GOAL) else share


@about_tables
def explain_memory(table: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, and how full sharding's saving compares with the most there is."""
    if table["peak"].isna().all():
        error = table["counted_error"].max()
        sentence = (
            f"The parameters, states and activations that the ranks counted agree with the formulas to within "
            f"{units.percent(error)}. There is no allocator's peak to compare with: this run was on CPUs."
        )
        return say(sentence, small=fact(table, "small"))
    worst = table.loc[table["unexplained_share"].abs().idxmax()]
    share, where = abs(worst["unexplained_share"]), f"{STRATEGY_NAMES[worst['strategy']]}, {worst['load']} batch"
    sentences = [
        f"**The ledger explains all {len(table)} peaks** to within {units.percent(share)}."
        if share <= EXPLAINED
        else f"**{units.percent(share)} of a peak is not explained** ({where})."
    ]
    rows = table[(table["load"] == "large") & (table["ranks"] == table["ranks"].max())].set_index("strategy")
    if {"ddp", "fsdp_full"} <= set(rows.index):
        ratio, ranks = rows.loc["ddp", "peak"] / rows.loc["fsdp_full", "peak"], rows["ranks"].iloc[0]
        states = rows.loc["ddp", ["parameters", "gradients", "optimizer"]].sum() / 1024
        kept = rows.loc["ddp", "activations"] / 1024
        sentences.append(
            f"Full sharding over {ranks} GPUs divides the peak by {units.number(ratio, 3)}, not by {ranks}. It shards "
            f"{units.number(states)} GiB of parameters, gradients and states, but not the {units.number(kept)} GiB of "
            "activations."
        )
    return say(*sentences, small=fact(table, "small"))


@about_tables
def explain_strategies(table: pd.DataFrame, held: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say who keeps a GPU's rate, then what both ledgers say: memory, and the collectives of the large batch."""
    return together(explain_scaling(table), explain_memory(held), explain_sent(sent[sent["load"] == "large"]))


def explain_ladder(table: pd.DataFrame, published: float) -> Markdown:
    """Say what every rung brought, and where the top stands beside the published rate and the datasheet's."""
    best, first = table.loc[table["tokens_per_s"].idxmax()], table.iloc[0]
    sentences = []
    if not fact(table, "small"):
        printed = units.count(published)
        if first["tokens_per_s"] < 0.95 * published:
            sentences.append(
                f"The first rung, {first['knob']}, reaches {units.number(first['tokens_per_s'])} tokens/s: less than "
                f"the {printed} that the report prints."
            )
        top, times = units.number(best["tokens_per_s"]), units.number(best["tokens_per_s"] / published)
        sentences.append(f"The fastest reaches {top} tokens/s, which is {times} times the printed {printed}.")
    if pd.notna(best["mfu"]):
        sentences.append(f"Its MFU is {units.percent(best['mfu'])}.")
    return together(explain_knobs(table), say(*sentences))


def explain_batches(table: pd.DataFrame) -> Markdown:
    """Say from which batch on more of it brings little, what does not fit, and whether the ledger knew."""
    fits = table[table["tokens_per_s"].notna()]
    sentences = []
    for row in fits.nlargest(1, "tokens_per_s").itertuples():
        below = fits[fits["tokens_per_s"] < 0.95 * row.tokens_per_s]["micro_batch"].max()
        near, rate = fits[~(fits["micro_batch"] <= below)]["micro_batch"], units.number(row.tokens_per_s)
        sentences.append(
            f"From {near.min()} sequences on the rate is within 5 % of the best, {rate} tokens/s."
            if len(near)
            else f"The best rate, {rate} tokens/s, has {row.micro_batch} sequences; more are slower."
        )
    for row in table[table["tokens_per_s"].isna()].iloc[:1].itertuples():
        size = units.size(row.predicted_mib * 2**20)
        sentences.append(f"{row.micro_batch} sequences are {row.status}: by the ledger they need {size}.")
    apart = (1 - fits["predicted_mib"] / fits["peak_mib"]).abs().max()
    if pd.notna(apart):
        sentences.append(f"Where the batch fits, ledger and peak differ by at most {units.percent(apart)}.")
    return say(*sentences, small=fact(table, "small"))


@about_tables
def explain_speed(ladder: pd.DataFrame, batches: pd.DataFrame, published: float) -> Markdown:
    """Say what the knobs brought, then what larger batches bring."""
    return together(explain_ladder(ladder, published), explain_batches(batches))


@about_tables
def explain_report_setup(reported: pd.DataFrame, accumulated: pd.DataFrame) -> Markdown:
    """Say how fast more GPUs are with the report's configuration, then what one exchange per step saves."""
    return together(explain_reported(reported), explain_accumulation(accumulated))


@about_tables
def explain_training(equality: pd.DataFrame, options: pd.DataFrame) -> Markdown:
    """Say whether all strategies train as one process does, then what recomputing and compression bring."""
    return together(explain_equality(equality), explain_options(options))


@about_tables
def explain_accumulation(table: pd.DataFrame) -> Markdown:
    """Say what one exchange per step does to bytes, time and memory, beside one after every micro-batch."""
    sentences = []
    for row in table.itertuples():
        time = "the time of the step stays the same within noise"
        if row.resolved:
            share, more = (
                units.percent(abs(row.saved_ms) / row.step_ms_every),
                "less" if row.saved_ms > 0 else "**more**",
            )
            time = f"the step takes {share} {more} time"
        kept = row.peak_mib_last - row.peak_mib_every
        price = f", and the peak is {units.size(kept * 2**20)} higher" if kept > 0 else ""
        sentences.append(
            f"- {STRATEGY_NAMES[row.strategy]}, {row.micro_batches} micro-batches, one exchange instead of "
            f"{row.micro_batches}: gradients sent fall {row.gradients_mib_every / row.gradients_mib_last:.0f}×, {time}"
            f"{price}."
        )
    return say("\n".join(sentences), small=fact(table, "small"))


def explain_reported(table: pd.DataFrame) -> Markdown:
    """Say how much two or more GPUs bring with the report's own configuration, beside what the report prints."""
    sentences = []
    for row in table[table["strategy"] != "single"].itertuples():
        measured = f"{row.speedup:.2f}" + (f" ± {row.spread_speedup:.2f}" if row.spread_speedup >= 0.005 else "")
        near = abs(row.speedup - row.printed_speedup) <= row.spread_speedup + 0.01
        verdict = "as printed" if near else "more than printed" if row.speedup > row.printed_speedup else "**less**"
        sentences.append(
            f"{STRATEGY_NAMES[row.strategy]} on {row.ranks} ranks is {measured} times as fast as one; the report "
            f"prints {row.printed_speedup:.2f}{'' if fact(table, 'small') else f': {verdict}'}."
        )
    return say(*sentences, small=fact(table, "small"))


def explain_options(table: pd.DataFrame) -> Markdown:
    """Say whether all strategies have the same losses, what recomputing saves, what compression brings."""
    rows = table.set_index(["strategy", "option"])
    plain = table[table["option"].isin(["", "recomputed"])]
    worst = plain["loss_off"].max()
    sentences = [
        f"**All strategies have the same losses**, to within {100 * worst:.2g} %."
        if worst < _ROUNDING
        else f"**Losses differ** by up to {units.percent(worst)} "
        f"({STRATEGY_NAMES[plain.loc[plain['loss_off'].idxmax(), 'strategy']]})."
    ]
    memory, kind = (
        ("peak_mib", "peak memory") if table["peak_mib"].notna().any() else ("activations_mib", "activations")
    )
    for (strategy, option), row in rows[rows.index.get_level_values("option") != ""].iterrows():
        base = rows.loc[(strategy, "")]
        rate = _rate_beside(row, base)
        if option == "recomputed":
            kept = units.percent(row[memory] / base[memory])
            sentences.append(f"{STRATEGY_NAMES[strategy]} that recomputes activations: {kept} of the {kind}, {rate}.")
            continue
        less = units.number(base["gradients_mib"] / row["gradients_mib"])
        sentences.append(
            f"{STRATEGY_NAMES[strategy]} with {option} sends {less} times less, {rate}; its losses differ by up to "
            f"{100 * row['loss_off']:.2g} %."
        )
    return say(*sentences, small=fact(table, "small"))


def _rate_beside(row: pd.Series, base: pd.Series) -> str:
    rates = row["tokens_per_s"], base["tokens_per_s"]
    if not resolved(*rates, row["spread_tokens_per_s"], base["spread_tokens_per_s"]):
        return "the same rate within noise"
    return f"{units.percent(rates[0] / rates[1])} of the rate"


@about_tables
def explain_overlap(table: pd.DataFrame) -> Markdown:
    """Say per strategy how much communication is hidden by three methods, and why they differ where they do."""
    sentences = [f"- {_overlap(row)}" for row in table.itertuples()]
    slowed = table[table["slowed_ms"] > _NOTABLE * table["communication_ms"]]
    if len(slowed):
        names = listed(STRATEGY_NAMES[name] for name in slowed["strategy"])
        sentences.append(
            f"\n**Hidden communication is not free**: under {names} computing itself takes longer, because the kernels "
            "share cores and memory."
        )
    waits = host_bound(table)
    sentences += [f"\n**Host-bound**, because kernels are enqueued too late: {listed(waits)}."] if waits else []
    return say("\n".join(sentences) or "Nothing was communicated.", small=fact(table, "small"))


def _overlap(row: Any) -> str:
    exposed = [units.seconds(max(0.0, ms) / 1e3) for ms in (row.trace_ms, row.steps_ms, row.waits_ms)]
    head = (
        f"**{STRATEGY_NAMES[row.strategy]}** communicates for {units.seconds(row.communication_ms / 1e3)}. Exposed by "
        f"trace, by difference and by hooks: {listed(exposed)}"
    )
    if row.apart_points <= _AGREE:
        return f"{head}. The methods agree to {units.number(row.apart_points, 2)} percentage points."
    differences = []
    if row.slowed_ms > _NOTABLE * row.communication_ms:
        differences.append(f"computing takes {units.seconds(row.slowed_ms / 1e3)} longer than alone")
    if row.idle_ms > _NOTABLE * row.communication_ms:
        differences.append(f"the GPU idles {units.seconds(row.idle_ms / 1e3)} more")
    reasons = f" In the trace {listed(differences)}." if differences else ""
    return f"{head}. **They differ by {units.number(row.apart_points, 2)} percentage points.**{reasons}"
