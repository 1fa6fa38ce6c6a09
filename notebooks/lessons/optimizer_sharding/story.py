"""Tables of lab 11 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, resolved, say

MIB = 2**20
_EXPLAINED, _EVEN = 0.1, 0.05
_NAMES = {"zero_redundancy": "torch's", "zero_buckets": "torch's in buckets", "sharded": "ours"}
_KINDS = {"adamw": "AdamW", "momentum": "SGD with momentum"}
MOMENTS = {"built": "when all is built", "before update": "in backward", "after update": "in the update"}


@about_tables
def explain_memory(table: pd.DataFrame, saved: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, when the peak is, and what sharding saves, of which item."""
    small, sentences = fact(table, "small"), []
    if table["peak"].notna().any():
        worst = table.loc[table["unexplained_share"].abs().idxmax()]
        share, kernel = units.percent(abs(worst["unexplained_share"])), worst["kernel"]
        at = f"{worst['way'].replace('_', ' ')}, {kernel}, {MOMENTS[worst['moment']]}"
        is_explained = abs(worst["unexplained_share"]) <= _EXPLAINED
        sentences.append(
            f"The ledger explains every peak to within {share} ({at})."
            if is_explained
            else f"**{share} of a peak is not explained** ({at})."
        )
    else:
        error = table["counted_error"].max()
        sentences.append(
            "No allocator counts a CPU's memory. The ranks' parameters, gradients and states have the formulas' bytes."
            if error < 0.01
            else f"**The bytes that ranks counted differ from the formulas by up to {units.percent(error)}.**"
        )
    for kernel, rows in saved[saved["way"] == "sharded"].groupby("kernel", sort=False):
        sentences.append(_saved(kernel, rows.iloc[0]))
    sentences += _beside_torch(saved)
    return say(*sentences, small=small)


def _saved(kernel: str, row: pd.Series) -> str:
    is_measured = pd.notna(row["measured"])
    saved_mib = row["measured"] if is_measured else row["predicted"]
    if saved_mib <= 0:
        return f"**With {kernel} kernels sharding saves nothing.**"
    verb = "saves" if is_measured else "should save"
    sentence = f"With {kernel} kernels ours {verb} {units.size(saved_mib * MIB)} of the peak"
    states, temporary = row["states"], row["temporary"]
    if abs(states + temporary - row["predicted"]) > 0.05 * row["predicted"]:
        return f"{sentence}; the fullest moment is then another one."
    if temporary > 0.05 * row["predicted"]:
        return (
            f"{sentence}: by formula {units.size(states * MIB)} are states, **{units.size(temporary * MIB)} are the "
            "square roots that AdamW's many kernels keep for a moment**, a bucket's at a time in ours."
        )
    return f"{sentence}; by formula {units.size(states * MIB)}, which are states."


def _beside_torch(saved: pd.DataFrame) -> list[str]:
    peaks = saved.pivot_table(index="kernel", columns="way", values="peak", sort=False)
    torch_ways = [way for way in ("zero_redundancy", "zero_buckets") if way in peaks]
    if "sharded" not in peaks or not torch_ways:
        return []
    ratio = (peaks["sharded"] / peaks[torch_ways].min(axis=1)).max()
    if ratio <= 1.01:
        return [f"Our peak is at most {units.number(ratio)}× that of torch's leaner sharded optimizer."]
    return [f"**Our peak is up to {units.number(ratio)}× that of torch's sharded optimizer.**"]


@about_tables
def explain_steps(table: pd.DataFrame) -> Markdown:
    """Say for each optimizer how our update compares with torch's two and with unsharded, and what is exposed."""
    sentences = []
    for (optimizer, kernel), rows in table.groupby(["optimizer", "kernel"], sort=False):
        by_way = rows.set_index("way")
        if not {"sharded", "unsharded"} <= set(by_way.index):
            continue
        torch_rows = by_way[by_way.index.str.startswith("zero")]
        name = f"{_KINDS[optimizer]}, {kernel}"
        sharded = by_way.loc["sharded"]
        sentence = f"**{name}**: our update takes {units.number(sharded['update_ms'])} ms"
        if len(torch_rows):
            best = torch_rows.loc[torch_rows["update_ms"].idxmin()]
            clear = _clear(sharded, best, "update")
            beside = (
                f"{units.number(sharded['over_torch'])}× {_NAMES[best.name]}"
                if clear
                else (f"equal to {_NAMES[best.name]} within noise")
            )
            sentence += f", {beside}"
        hidden = sharded["exposed_ms"] <= sharded["spread_update_ms"] + sharded["spread_local_ms"]
        sentence += (
            "; its sending is hidden"
            if hidden
            else (f"; {units.number(sharded['exposed_ms'])} ms of that is sending that nothing hides")
        )
        sentences.append(f"{sentence}. {_whole_step(by_way.loc['unsharded'], sharded)}")
    return say(*sentences or ["There is nothing to compare with."], small=fact(table, "small"))


def _clear(one: pd.Series, other: pd.Series, part: str) -> bool:
    return resolved(one[f"{part}_ms"], other[f"{part}_ms"], one[f"spread_{part}_ms"], other[f"spread_{part}_ms"])


def _whole_step(unsharded: pd.Series, sharded: pd.Series) -> str:
    saved_ms = unsharded["step_ms"] - sharded["step_ms"]
    if not _clear(unsharded, sharded, "step"):
        return "Whole steps with and without sharding differ by no more than noise."
    direction = "shorter" if saved_ms > 0 else "**longer**"
    return f"A step is {units.number(abs(saved_ms))} ms {direction} than with whole states."


@about_tables
def explain_buckets(table: pd.DataFrame) -> Markdown:
    """Say which size of buckets is fastest, and what one that is too small or too large costs."""
    if table.empty:
        return say("No size of buckets is complete.", small=fact(table, "small"))
    rows = table.sort_values("bucket_mib").set_index("bucket_mib")
    best = rows.loc[rows["update_ms"].idxmin()]
    sentences = [f"Fastest is {best.name:g} MiB: {units.number(best['update_ms'])} ms."]
    for end, kind in ((rows.iloc[0], "small"), (rows.iloc[-1], "large")):
        if end.name == best.name:
            sentences.append(f"No size tried is too {kind}.")
        elif _clear(end, best, "update"):
            why = "every bucket costs a call" if kind == "small" else "little computing is left to hide the sending"
            more = f"{units.times(end['update_ms'] / best['update_ms'])}"
            sentences.append(f"{end.name:g} MiB take {more} as long: {why}.")
        else:
            sentences.append(f"{end.name:g} MiB take the same time within noise.")
    equal_sizes = [
        f"{row.name:g}"
        for _, row in rows.iloc[1:-1].iterrows()
        if row.name != best.name and not _clear(row, best, "update")
    ]
    if equal_sizes:
        sentences.insert(1, f"Equal to it within noise: {listed(equal_sizes)} MiB.")
    return say(*sentences, small=fact(table, "small"))


def explain_balance(table: pd.DataFrame, owned: pd.DataFrame | None = None) -> Markdown:
    """Say how uneven each rule gets and where, and what the ranks of a run counted."""
    sentences = []
    for rule, rows in table.groupby("rule", sort=False):
        worst = rows.loc[rows["excess"].idxmax()]
        if worst["excess"] <= _EVEN:
            over = f" and {units.percent(worst['excess'])}" if worst["excess"] > 1e-4 else ""
            sentences.append(f"**{rule.capitalize()}**, no rank ever has more than an equal part{over}.")
            continue
        sentence = (
            f"**{rule.capitalize()}**, the fullest rank has up to {units.percent(worst['excess'])} more than an "
            f"equal part ({worst['model']}, {worst['ranks']} ranks)"
        )
        bound = rule == "whole parameters" and worst["least_excess"] > _EVEN
        alone = f": one parameter alone is {units.percent(worst['least_excess'])} more than that" if bound else ""
        sentences.append(f"{sentence}{alone}.")
    if owned is not None:
        sharded = owned.set_index("way").loc["sharded"]
        sentences.append(
            f"Counted in the run: the fullest rank of ours holds {units.percent(sharded['fullest'])} of the "
            f"states, {units.percent(abs(sharded['excess']))} {'over' if sharded['excess'] >= 0 else 'under'} "
            "an equal part."
        )
    return say(*sentences)


def explain_stages(table: pd.DataFrame) -> Markdown:
    """Say what ours has in common with ZeRO-1, what it sends more, and what the next stages save."""
    rows = table.set_index("stage")
    sharded, zero1 = rows.loc["ours"], rows.loc["zero1"]
    holds_as_much = abs(sharded["held_gib"] - zero1["held_gib"]) < 1e-6
    sentences = ["Ours holds as much as ZeRO-1" if holds_as_much else "Ours does not hold as much as ZeRO-1"]
    sent_ratio = sharded["sent_gb"] / zero1["sent_gb"] if zero1["sent_gb"] else 1.0
    sentences[0] += (
        f", and **sends {units.times(sent_ratio)} as much**: it all-reduces gradients of which a rank uses "
        "one N-th, and ZeRO-1 scatters them."
        if sent_ratio > 1
        else ", and sends as much."
    )
    for name, kind in (("zero2", "gradients"), ("zero3", "parameters")):
        saved_gib = zero1["held_gib"] - rows.loc[name, "held_gib"]
        sentences.append(
            f"ZeRO-{name[-1]} shards {kind}, too: {units.number(saved_gib)} GiB less than ZeRO-1."
            if saved_gib > 0
            else f"ZeRO-{name[-1]} saves nothing here."
        )
    return say(*sentences)


@about_tables
def explain_equality(table: pd.DataFrame) -> Markdown:
    """Say whether ours trains as the optimizer that shards nothing, in every case."""
    wrong, ranks = table[~table["equal"]], fact(table, "ranks")
    if wrong.empty:
        worst = table[["error", "drift"]].max(axis=None)
        equality = "equal bit by bit" if worst == 0 else f"equal to {worst:.0e} of a tensor's largest number"
        closure_calls = table[table["case"] == "closure"]["asked"]
        once = " A closure is called once per step." if len(closure_calls) and (closure_calls == 1).all() else ""
        return say(
            f"In all {len(table)} cases on {ranks} ranks the weights are {equality}.{once}", small=fact(table, "small")
        )
    names = listed(f"{r.optimizer}, {r.case} ({r.error:.0e})" for r in wrong.itertuples())
    return say(f"**Not equal to the optimizer that shards nothing**: {names}.", small=fact(table, "small"))
