"""Tables of lab 04 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.ui import units
from labkit.ui.words import listed, say

NAMES = {
    "single": "one rank alone", "ddp": "DDP", "fsdp_root": "FSDP as one group", "fsdp_grad": "FSDP gradient-only",
    "fsdp_full": "FSDP full", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3",
}  # fmt: skip
EXPLAINED = 0.1  # of the peak: what may stay unexplained


def explain_memory(table: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, what a rank's memory is mostly, and what full sharding saves."""
    sentences = []
    worst = table.loc[table["unexplained_share"].abs().idxmax()] if table["peak"].notna().any() else None
    if worst is None:
        error = table["counted_error"].max()
        sentences.append(
            f"A CPU has no allocator to ask. Parameters, states and activations that the ranks counted are the "
            f"formulas', to {units.percent(error)}." if error < 0.01 else
            f"**What the ranks counted differs from the formulas by up to {units.percent(error)}.**")  # fmt: skip
    else:
        share = abs(worst["unexplained_share"])
        where = f"{NAMES[worst['strategy']]}, batch {worst['batch']}"
        sentences.append(
            f"The ledgers explain every peak to within {units.percent(share)} ({where})." if share <= EXPLAINED else
            f"**{units.percent(share)} of a peak is not explained** ({where}).")  # fmt: skip
    rows = table[table["batch"] == table["batch"].max()].set_index("strategy")
    if {"ddp", "fsdp_full"} <= set(rows.index):
        ddp, full = rows.loc["ddp"], rows.loc["fsdp_full"]
        measured = ddp["peak"] - full["peak"]
        saved = ddp["predicted"] - full["predicted"] if pd.isna(measured) else measured
        whole = ddp["predicted"] if pd.isna(measured) else ddp["peak"]
        kind = "should save" if pd.isna(measured) else "saves"
        kept = ddp["activations"] / ddp["predicted"]
        sentences.append(
            f"Full sharding {kind} {units.size(saved * 2**20)}, {units.percent(saved / whole)}." if saved > 0 else
            f"**Full sharding saves nothing**: it takes {units.size(-saved * 2**20)} more than DDP.")  # fmt: skip
        if kept > 0.5 and saved > 0:
            sentences.append(
                f"**It cannot save much: {units.percent(kept)} of the memory are activations**, and none of "
                "these strategies shards those.")  # fmt: skip
    return say(*sentences, small=table.attrs["small"])


def explain_sent(table: pd.DataFrame) -> Markdown:
    """Say whether what was counted is what the formula gives, and what full sharding sends beside DDP."""
    unequal = table[~table["equal"].astype(bool)]
    total = f"All {len(table)} collectives"
    if unequal.empty:
        sentences = [f"{total} were called as often, and with as many bytes, as the formulas say."]
    else:
        names = listed(f"{NAMES[r.strategy]}: {r.collective} ({r.counted_calls} calls, not {r.calls})"
                       for r in unequal.itertuples())  # fmt: skip
        sentences = [f"**{len(unequal)} of {len(table)} collectives are not the formulas'**: {names}."]
    link = table.assign(link=table["counted_mib"] * table["collective"].map({"all-reduce": 2.0}).fillna(1.0))
    link = link[link["collective"] != "broadcast"].groupby("strategy", sort=False)["link"].sum()
    if {"ddp", "fsdp_full"} <= set(link.index):
        ratio = link["fsdp_full"] / link["ddp"]
        sentences.append(
            f"FSDP full sends {units.times(ratio)} what DDP sends: the blocks' parameters twice, the rest's and all "
            "gradients once."
        )
    return say(*sentences, small=table.attrs["small"])


def explain_strategies(table: pd.DataFrame, apart: pd.DataFrame) -> Markdown:
    """Say which strategies are told apart from DDP, by how much, and what DDP loses to communication."""
    sentences = []
    for row in table[table["strategy"] == "ddp"].itertuples():
        if pd.notna(row.efficiency):
            sentences.append(f"DDP, batch {row.batch}: {units.number(row.samples_per_s)} samples/s, "
                             f"{units.percent(row.efficiency)} of ranks that exchange nothing.")  # fmt: skip
    told = [f"{NAMES[r.strategy]} by {r.percent:+.1f} % (batch {r.batch})" for r in apart.itertuples() if r.resolved]
    not_told, missing = (
        [f"{NAMES[r.strategy]} (batch {r.batch})" for r in apart[some].itertuples() if not r.resolved]
        for some in (apart["percent"].notna(), apart["percent"].isna())
    )
    if told:
        sentences.append(f"Told apart from DDP: {listed(told)}.")
    if not_told:
        sentences.append(f"**Not resolved by these data**: {listed(not_told)}.")
    if missing:
        sentences.append(f"Not measured: {listed(missing)}.")
    return say(*sentences or ["There is no DDP here to compare with."], small=table.attrs["small"])


def explain_knobs(table: pd.DataFrame) -> Markdown:
    """Say what every knob brought, which brought most, and which brought nothing."""
    rate = f"{table.attrs['unit']}_per_s"
    rows = table[table[rate].notna()]
    failed = [f"{r.knob} ({r.status})" for r in table[table[rate].isna()].itertuples()]
    sentences = [f"Not measured: {listed(failed)}."] if failed else []
    if len(rows) < 2:
        return say("One rung is no ladder.", *sentences, small=table.attrs["small"])
    spread = rows[f"spread_{rate}"] / rows[rate]
    gains = rows.assign(clear=(rows["times_previous"] - 1).abs() > spread + spread.shift()).iloc[1:]
    faster = gains[gains["clear"] & (gains["times_previous"] > 1)]
    if faster.empty:
        sentences.insert(0, "No knob made the step faster, as far as these data tell.")
    else:
        most, best = faster.loc[faster["times_previous"].idxmax()], gains.loc[gains[rate].idxmax()]
        reach = "All together" if best.name == gains.index[-1] else f"Up to {best['knob']}"
        sentences.insert(0, f"{reach}: {units.times(best['times_first'])} the first configuration's rate. Most comes "
                            f"from {most['knob']}, {units.times(most['times_previous'])}.")  # fmt: skip
    slower = [f"{r.knob} ({units.times(r.times_previous)})" for r in gains.itertuples() if r.clear and
              r.times_previous < 1]  # fmt: skip
    nothing = [r.knob for r in gains.itertuples() if not r.clear]
    if slower:
        sentences.append(f"**Slower**: {listed(slower)}.")
    if nothing:
        sentences.append(f"Not resolved by these data: {listed(nothing)}.")
    return say(*sentences, small=table.attrs["small"])


def explain_equality(table: pd.DataFrame) -> Markdown:
    """Say whether every strategy trained as one process does."""
    wrong = table[~table["equal"]]
    worst = table[["loss_error", "update_error"]].max(axis=None)
    if wrong.empty:
        return say(f"All {len(table)} strategies on {table.attrs['ranks']} ranks trained as one process does on the "
                   f"same samples; losses and changes of the weights differ by {worst:.0e}, rounding.",
                   small=table.attrs["small"])  # fmt: skip
    names = listed(NAMES[name] for name in wrong["strategy"])
    return say(f"**{names} trained otherwise than one process** (by up to {units.percent(worst)}).",
               small=table.attrs["small"])  # fmt: skip


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
        sentences.append(f"{NAMES[zero]} beside {NAMES[fsdp]}: {speed}{memory}.")
    if {"zero2", "ddp"} <= set(rows.index):
        ratio = rows.loc["zero2", "link_mib"] / rows.loc["ddp", "link_mib"]
        sentences.append(
            f"ZeRO-2 sends {units.times(ratio)} DDP's bytes: **it all-reduces gradients of which it keeps a part**, "
            "and gathers parameters after that." if ratio > 1.1 else "ZeRO-2 sends what DDP sends.")  # fmt: skip
    return say(*sentences or ["Only one library was measured."], small=table.attrs["small"])
