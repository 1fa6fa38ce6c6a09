"""Sentences that every lab that trains says: what was sent, what a knob brought, whether training is right."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, fact_or
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.words import listed, say

EXPLAINED = 0.1  # of the peak: what may stay unexplained
HOST_BOUND = 0.25  # of a profiled step: gaps between kernels take 1 to 12 % of steps whose host keeps up


def explain_sent(table: pd.DataFrame) -> Markdown:
    """Say whether the counted collectives are the formulas', and what full sharding sends compared with DDP."""
    unequal = table[~table["equal"].astype(bool)]
    if unequal.empty:
        sentences = [f"**All {len(table)} collectives agree with the formulas**, in calls and in bytes."]
    else:
        names = listed(
            f"{STRATEGY_NAMES[r.strategy]}: {r.collective} ({r.counted_calls} calls, not {r.calls})"
            for r in unequal.itertuples()
        )
        sentences = [f"**{len(unequal)} of {len(table)} collectives differ from the formulas**: {names}."]
    link = table.assign(link=table["counted_mib"] * table["collective"].map({"all-reduce": 2.0}).fillna(1.0))
    link = link[link["collective"] != "broadcast"].groupby("strategy", sort=False)["link"].sum()
    if {"ddp", "fsdp_full"} <= set(link.index):
        ratio = link["fsdp_full"] / link["ddp"]
        sentences.append(
            f"Through each link FSDP full sends {units.times(ratio)} what DDP sends. An all-reduce sends its bytes "
            "twice. FSDP full gathers the blocks' parameters twice, the other parameters once, and scatters all "
            "gradients once."
        )
    return say(*sentences, small=fact(table, "small"))


def explain_knobs(table: pd.DataFrame) -> Markdown:
    """Say how much faster each knob made the step, which knob helped most, and which ones did not help."""
    rate = f"{fact(table, 'unit')}_per_s"
    rows = table[table[rate].notna()]
    failed = [f"{r.knob} ({r.status})" for r in table[table[rate].isna()].itertuples()]
    sentences = [f"Not measured: {listed(failed)}."] if failed else []
    if len(rows) < 2:
        return say("Only one setting was measured.", *sentences, small=fact(table, "small"))
    spread = rows[f"spread_{rate}"] / rows[rate]
    gains = rows.assign(clear=(rows["times_previous"] - 1).abs() > spread + spread.shift()).iloc[1:]
    faster = gains[gains["clear"] & (gains["times_previous"] > 1)]
    if faster.empty:
        sentences.insert(0, "No knob made the step faster beyond noise.")
    else:
        most, best = faster.loc[faster["times_previous"].idxmax()], gains.loc[gains[rate].idxmax()]
        reach = "All knobs together" if best.name == gains.index[-1] else f"All knobs up to {best['knob']}"
        sentences.insert(
            0,
            f"{reach} make the step {units.times(best['times_first'])} as fast. The largest gain is "
            f"{most['knob']}: {units.times(most['times_previous'])}.",
        )
    slower = [
        f"{r.knob} ({units.times(r.times_previous)})" for r in gains.itertuples() if r.clear and r.times_previous < 1
    ]
    nothing = [r.knob for r in gains.itertuples() if not r.clear]
    if slower:
        sentences.append(f"**Slower** than the setting before: {listed(slower)}.")
    if nothing:
        sentences.append(f"Within noise: {listed(nothing)}.")
    return say(*sentences, small=fact(table, "small"))


def explain_equality(table: pd.DataFrame) -> Markdown:
    """Say whether every strategy trained as one process does."""
    wrong = table[~table["equal"]]
    worst = table[["loss_error", "update_error"]].max(axis=None)
    if wrong.empty:
        sentence = (
            f"**All {len(table)} strategies on {fact(table, 'ranks')} ranks train as one process does** on the same "
            f"samples. Losses and changes of the weights differ by at most {units.number(1e6 * worst, 2)} millionths, "
            "which is rounding."
        )
    else:
        names = listed(STRATEGY_NAMES[name] for name in wrong["strategy"])
        sentence = f"**{names} trained otherwise than one process** (by up to {units.percent(worst)})."
    return say(sentence, small=fact(table, "small"))


def host_bound(profile: pd.DataFrame, names: Mapping[str, str] = STRATEGY_NAMES) -> list[str]:
    """Return a sentence part per profiled strategy whose GPU waits for its host: "rank 0's GPU idles 83 of 185 ms".

    Takes a table that carries the fact `idlest` of `labkit.tables.profile.profile`; of others, and of small runs, there
    is nothing to say.
    """
    idlest = [] if fact_or(profile, "small", False) else fact_or(profile, "idlest", [])
    return [
        f"rank {rank}'s GPU idles {idle_ms:.0f} of {window_ms:.0f} ms ({names.get(strategy, strategy)}, {ranks} ranks)"
        for strategy, ranks, rank, idle_ms, window_ms in idlest
        if idle_ms > HOST_BOUND * window_ms
    ]
