"""Tables of lab 05 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

from typing import Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.training import EXPLAINED, explain_knobs, explain_sent
from labkit.story.training import explain_equality as explain_equality
from labkit.story.words import listed, say, text

_GOAL = 0.95  # of a GPU alone
_AGREE = 3.0  # points of overlap
_NOTABLE = 0.05  # of the communication


def explain_scaling(table: pd.DataFrame) -> Markdown:
    """Say which strategies keep 95 % of a GPU's rate, which do not, and what the smaller batch costs.

    Where the goal lies inside the spread, neither is said: it is open.
    """
    large = table[(table["load"] == "large") & (table["strategy"] != "single") & table["efficiency"].notna()]
    spread = large["spread_efficiency"].fillna(0.0)
    reached, missed = large["efficiency"] - spread >= _GOAL, large["efficiency"] + spread < _GOAL
    good, poor, unclear = (
        [f"{STRATEGY_NAMES[r.strategy]} on {r.ranks} ({_kept(r, with_spread)})" for r in rows.itertuples()]
        for rows, with_spread in ((large[reached], False), (large[missed], False), (large[~reached & ~missed], True))
    )
    sentences = [f"With the large batch at least 95 % of a GPU alone: {listed(good)}." if good else None]
    sentences += [f"**Less**: {listed(poor)}." if poor else None]
    sentences += [f"**Open**, because 95 % lies inside the spread: {listed(unclear)}." if unclear else None]
    shared = table[(table["load"] == "shared out") & (table["strategy"] != "single")]
    for row in shared.loc[shared["efficiency"].nsmallest(1).index].itertuples():
        same = large[(large["strategy"] == row.strategy) & (large["ranks"] == row.ranks)]["efficiency"]
        if len(same) and row.efficiency < same.iloc[0] - 0.02:
            sentences.append(
                f"The report's batch, shared out, gives a GPU less to do for each launch and each exchange: "
                f"{STRATEGY_NAMES[row.strategy]} falls to {units.percent(row.efficiency)}."
            )
    if table["mfu"].notna().any():
        best = table.loc[table["mfu"].idxmax()]
        sentences.append(f"Best MFU: {units.percent(best['mfu'])} ({STRATEGY_NAMES[best['strategy']]}).")
    return say(*sentences, small=fact(table, "small"))


def _kept(row: Any, with_spread: bool) -> str:
    """Return the share of a GPU's rate that is kept; what misses the goal is never rounded onto it."""
    if with_spread:
        return f"{100 * row.efficiency:.1f} ± {100 * row.spread_efficiency:.1f} %"
    share = units.percent(row.efficiency)
    return f"{100 * row.efficiency:.2f} %" if row.efficiency < _GOAL and share == units.percent(_GOAL) else share


def explain_memory(table: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, and how full sharding's saving compares with the most there is."""
    if table["peak"].isna().all():
        error = table["counted_error"].max()
        sentence = (
            f"Parameters, states and activations that the ranks counted differ from the formulas by at most "
            f"{units.percent(error)}; a CPU has no allocator to ask for more."
        )
        return say(sentence, small=fact(table, "small"))
    worst = table.loc[table["unexplained_share"].abs().idxmax()]
    share, where = abs(worst["unexplained_share"]), f"{STRATEGY_NAMES[worst['strategy']]}, {worst['load']}"
    sentences = [
        f"The ledgers explain all {len(table)} peaks to within {units.percent(share)}."
        if share <= EXPLAINED
        else f"**{units.percent(share)} of a peak is not explained** ({where})."
    ]
    rows = table[(table["load"] == "large") & (table["ranks"] == table["ranks"].max())].set_index("strategy")
    if {"ddp", "fsdp_full"} <= set(rows.index):
        ratio, ranks = rows.loc["ddp", "peak"] / rows.loc["fsdp_full", "peak"], rows["ranks"].iloc[0]
        states = rows.loc["ddp", ["parameters", "gradients", "optimizer"]].sum() / 1024
        kept = rows.loc["ddp", "activations"] / 1024
        sentences.append(
            f"Full sharding over {ranks} ranks divides the peak by {units.number(ratio, 3)}, not by {ranks}: only "
            f"{units.number(states)} GiB are parameters, gradients and states; {units.number(kept)} GiB are "
            "activations."
        )
    return say(*sentences, small=fact(table, "small"))


def explain_ledgers(held: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say what both ledgers say: memory, then collectives (of the large batch, where nothing is accumulated)."""
    moved = text(explain_sent(sent[sent["load"] == "large"])).partition("\n")[0]
    memory, _, note = text(explain_memory(held)).partition("\n")
    return Markdown(f"{memory} {moved}\n{note}".rstrip())


def explain_ladder(table: pd.DataFrame, published: float) -> Markdown:
    """Say what every rung brought, and where the top stands beside the published rate and the datasheet's."""
    best = table.loc[table["tokens_per_s"].idxmax()]
    sentences = [text(explain_knobs(table)).partition("\n")[0]]
    if not fact(table, "small"):
        ratio = best["tokens_per_s"] / published
        top = units.number(best["tokens_per_s"])
        first = table["tokens_per_s"].iloc[0]
        if first < 0.95 * published:
            sentences.append(
                f"The report's own configuration gives {units.number(first)} tokens/s, not the "
                f"{units.number(published, 5)} that it prints: remember that below."
            )
        sentences.append(
            f"The top, {top} tokens/s, is {units.number(ratio)}× the published {units.number(published, 5)}."
        )
    if pd.notna(best["mfu"]):
        sentences.append(f"MFU there: {units.percent(best['mfu'])}.")
    return say(*sentences, small=fact(table, "small"))


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
        sentences.append(f"{row.micro_batch} sequences: {row.status}; the ledger asks for {size}.")
    apart = (1 - fits["predicted_mib"] / fits["peak_mib"]).abs().max()
    if pd.notna(apart):
        sentences.append(f"Where it fits, ledger and peak differ by at most {units.percent(apart)}.")
    return say(*sentences, small=fact(table, "small"))


def explain_speed(ladder: pd.DataFrame, batches: pd.DataFrame, published: float) -> Markdown:
    """Say what the knobs brought, then what larger batches bring."""
    knobs, _, note = text(explain_ladder(ladder, published)).partition("\n")
    separator = " " if note else "\n\n"
    return Markdown(f"{knobs}{separator}{text(explain_batches(batches))}")


def explain_accumulation(table: pd.DataFrame) -> Markdown:
    """Say what one exchange per step does to bytes, time and memory, beside one after every micro-batch."""
    sentences = []
    for row in table.itertuples():
        fewer = units.times(row.gradients_mib_every / row.gradients_mib_last)
        time = "whether that is faster is not resolved by these data"
        if row.resolved:
            share = units.percent(abs(row.saved_ms) / row.step_ms_every)
            less = "less" if row.saved_ms > 0 else "**more**"
            time = f"the step takes {units.seconds(abs(row.saved_ms) / 1e3)} {less} ({share})"
        kept = row.peak_mib_last - row.peak_mib_every
        price = f"; the price: {units.size(kept * 2**20)} more at the peak" if kept > 0 else ""
        sentences.append(
            f"{STRATEGY_NAMES[row.strategy]}: one exchange for {fact(table, 'times')} micro-batches sends {fewer} "
            f"fewer bytes of gradients; {time}{price}."
        )
    return say(*sentences, small=fact(table, "small"))


def explain_overlap(table: pd.DataFrame) -> Markdown:
    """Say per strategy how much communication the trace sees hidden, and why the methods differ where they do."""
    sentences = [_overlap(row) for row in table.itertuples()]
    slowed = table[table["slowed_ms"] > _NOTABLE * table["communication_ms"]]
    if len(slowed):
        names = listed(STRATEGY_NAMES[name] for name in slowed["strategy"])
        sentences.append(f"**What is hidden is not free**: seen under {names}; kernels share cores and memory.")
    return say(*sentences or ["Nothing was communicated."], small=fact(table, "small"))


def _overlap(row: Any) -> str:
    exposed = ", ".join(
        f"{units.seconds(max(0.0, ms) / 1e3)} {how}"
        for ms, how in (
            (row.trace_ms, "by the trace"),
            (row.steps_ms, "by the step without it"),
            (row.waits_ms, "by hooks"),
        )
    )
    moved = units.seconds(row.communication_ms / 1e3)
    head = f"**{STRATEGY_NAMES[row.strategy]}**: of {moved} communication exposed are {exposed}"
    if row.apart_points <= _AGREE:
        return f"{head}; the methods agree to {units.number(row.apart_points, 2)} points."
    differences = []
    if row.slowed_ms > _NOTABLE * row.communication_ms:
        differences.append(f"computing takes {units.seconds(row.slowed_ms / 1e3)} longer than alone")
    if row.idle_ms > _NOTABLE * row.communication_ms:
        differences.append(f"idling {units.seconds(row.idle_ms / 1e3)} more")
    beside = f"; in the trace {listed(differences)}" if differences else ""
    return f"{head}, **{units.number(row.apart_points, 2)} points apart**{beside}."
