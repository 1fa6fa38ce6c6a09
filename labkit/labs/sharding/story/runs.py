"""Tables of lab 05 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.training import EXPLAINED, explain_knobs, explain_sent
from labkit.story.training import explain_equality as explain_equality
from labkit.story.words import listed, say

GOAL = 0.95  # of a GPU alone
AGREE = 3.0  # points of overlap
NOTABLE = 0.05  # of the communication


def explain_scaling(table: pd.DataFrame) -> Markdown:
    """Say which strategies keep 95 % of a GPU's rate, which do not, and what the smaller batch costs."""
    large = table[(table["load"] == "large") & (table["strategy"] != "single")]
    good, poor = (
        [f"{STRATEGY_NAMES[r.strategy]} on {r.ranks} ({units.percent(r.efficiency)})" for r in rows.itertuples()]
        for rows in (large[large["efficiency"] >= GOAL], large[large["efficiency"] < GOAL])
    )
    sentences = [f"With the large batch at least 95 % of a GPU alone: {listed(good)}." if good else None]
    sentences += [f"**Less**: {listed(poor)}." if poor else None]
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
    return say(*sentences, small=table.attrs["small"])


def explain_memory(table: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, and how full sharding's saving compares with the most there is."""
    if table["peak"].isna().all():
        error = table["counted_error"].max()
        sentence = (
            f"Parameters, states and activations that the ranks counted differ from the formulas by at most "
            f"{units.percent(error)}; a CPU has no allocator to ask for more."
        )
        return say(sentence, small=table.attrs["small"])
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
    return say(*sentences, small=table.attrs["small"])


def explain_ledgers(held: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say what both ledgers say: memory, then collectives (of the large batch, where nothing is accumulated)."""
    moved = explain_sent(sent[sent["load"] == "large"]).data.partition("\n")[0]
    text, _, note = explain_memory(held).data.partition("\n")
    return Markdown(f"{text} {moved}\n{note}".rstrip())


def explain_ladder(table: pd.DataFrame, published: float) -> Markdown:
    """Say what every rung brought, and where the top stands beside the published rate and the datasheet's."""
    best = table.loc[table["tokens_per_s"].idxmax()]
    sentences = [explain_knobs(table).data.partition("\n")[0]]
    if not table.attrs["small"]:
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
    return say(*sentences, small=table.attrs["small"])


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
    return say(*sentences, small=table.attrs["small"])


def explain_speed(ladder: pd.DataFrame, batches: pd.DataFrame, published: float) -> Markdown:
    """Say what the knobs brought, then what larger batches bring."""
    text, _, note = explain_ladder(ladder, published).data.partition("\n")
    return Markdown(
        f"{text}\n\n{explain_batches(batches).data}" if not note else f"{text} {explain_batches(batches).data}"
    )


def explain_accumulation(table: pd.DataFrame) -> Markdown:
    """Say what one exchange a step does to bytes, time and memory, beside one after every micro-batch."""
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
            f"{STRATEGY_NAMES[row.strategy]}: one exchange for {table.attrs['times']} micro-batches sends {fewer} fewer bytes "
            f"of gradients; {time}{price}."
        )
    return say(*sentences, small=table.attrs["small"])


def explain_overlap(table: pd.DataFrame) -> Markdown:
    """Say, a strategy, how much communication the trace sees hidden, and why the methods differ where they do."""
    sentences = [_overlap(row) for row in table.itertuples()]
    slowed = table[table["slowed_ms"] > NOTABLE * table["communication_ms"]]
    if len(slowed):
        names = listed(STRATEGY_NAMES[name] for name in slowed["strategy"])
        sentences.append(f"**What is hidden is not free**: seen under {names}; kernels share cores and memory.")
    return say(*sentences or ["Nothing was communicated."], small=table.attrs["small"])


def _overlap(row) -> str:
    exposed = ", ".join(
        f"{units.seconds(max(0.0, ms) / 1e3)} {how}"
        for ms, how in (
            (row.trace_ms, "by the trace"),
            (row.steps_ms, "by the step without it"),
            (row.waits_ms, "by hooks"),
        )
    )
    head = f"**{STRATEGY_NAMES[row.strategy]}**: of {units.seconds(row.communication_ms / 1e3)} communication exposed are {exposed}"
    if row.apart_points <= AGREE:
        return f"{head}; the methods agree to {units.number(row.apart_points, 2)} points."
    found = []
    if row.slowed_ms > NOTABLE * row.communication_ms:
        found.append(f"computing takes {units.seconds(row.slowed_ms / 1e3)} longer than alone")
    if row.idle_ms > NOTABLE * row.communication_ms:
        found.append(f"idling {units.seconds(row.idle_ms / 1e3)} more")
    beside = f"; in the trace {listed(found)}" if found else ""
    return f"{head}, **{units.number(row.apart_points, 2)} points apart**{beside}."
