"""Tables of time and memory → sentences: where mixed precision pays, what a step holds, which levers are worth it."""

from __future__ import annotations

from typing import Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.training import EXPLAINED
from labkit.story.words import about_tables, listed, say, text
from lessons.precision_memory.theory.memory import residual_bytes

_PHASES = {
    "no_grad": "a forward without gradients",
    "forward": "a forward that keeps activations",
    "first step": "the first step",
    "steady step": "a steady step",
}
_LISTED = 8  # allocations that a table shows
_SHOWN = 0.01  # of the peak: a kind below is not named


@about_tables
def explain_speed(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Markdown:
    """Say for which sizes mixed precision is faster, slower or within noise, and the same of the published figures."""
    mixed = table[table["precision"] == "bfloat16"]
    sentences = [_gained(phase, mixed[mixed["phase"] == phase]) for phase in ("forward", "backward")]
    sentences.append(_tf32(table))
    if published is not None:
        theirs = published[published["precision"] == "bfloat16"]
        slower, most = theirs[theirs["gain"] < 1], theirs.loc[theirs["gain"].idxmax()]
        sentences.append(
            f"The report's A100: {len(slower)} of {len(theirs)} times are *slower* with mixed precision "
            f"({listed(f'{row.model} {row.phase}' for row in slower.itertuples())}); {most['model']} gains "
            f"{units.times(most['gain'])} in {most['phase']}. Small models wait for launches, and autocast adds "
            f"launches."
        )
    return say(*sentences, small=fact(table, "small"))


def _tf32(table: pd.DataFrame) -> str | None:
    """Say what TF32, which changes no dtype, gains at most."""
    rows = table[(table["precision"] == "tf32") & table["gain"].notna()]
    if rows.empty:
        return None
    most = rows.loc[rows["gain"].idxmax()]
    if most["gain"] - 1 <= most["spread_gain"]:
        return "TF32 is within noise of float32 everywhere, or slower."
    gain = f"{units.times(most['gain'])} for {most['model']} in {most['phase']}"
    return f"TF32, which changes no dtype and copies nothing, gains up to {gain}."


def _gained(phase: str, rows: pd.DataFrame) -> str | None:
    rows = rows[rows["gain"].notna()]
    if rows.empty:
        return None
    clear = (rows["gain"] - 1).abs() > rows["spread_gain"]
    faster, slower = rows[clear & (rows["gain"] > 1)], rows[clear & (rows["gain"] < 1)]
    parts = []
    if len(faster):
        parts.append(f"faster for {listed(faster['model'])} ({units.span(faster['gain'])})")
    if len(slower):
        parts.append(f"**slower** for {listed(slower['model'])} ({units.span(slower['gain'])})")
    if len(noise := rows[~clear]):
        parts.append(f"within noise for {listed(noise['model'])}")
    return f"In {phase}, bfloat16 autocast beside float32 is {listed(parts)}."


@about_tables
def explain_memory(table: pd.DataFrame) -> Markdown:
    """Say whether the ledger explains the peaks, when a step is fullest, and what mixed precision adds and saves."""
    counted = " (counted storage by storage: a CPU has no CUDA allocator)" if fact(table, "device") == "cpu" else ""
    known = table[table["peak"].notna()]
    worst = known.loc[known["unexplained_share"].abs().idxmax()]
    share = abs(worst["unexplained_share"])
    where = f"{_PHASES[worst['phase']]}, {worst['precision']}, context {worst['sequence']}"
    judged = "explains every peak" if share <= EXPLAINED else "**does not explain every peak**"
    first = f"The ledger {judged}{counted}: at most {units.percent(share)} is unexplained ({where})."
    return say(first, *_steps(known), _mixed(known), small=fact(table, "small"))


def _steps(table: pd.DataFrame) -> list[str]:
    sentences = []
    for precision, own in table.groupby("precision", sort=False):
        first, steady = (own[own["phase"] == name].set_index("sequence") for name in ("first step", "steady step"))
        if first.empty or steady.empty:
            continue
        flat = first[first["moment"] == "update"]
        if len(flat) > 1:
            sizes = units.span(flat["peak"], lambda mib: units.size(mib * units.MIB))
            sentences.append(
                f"In {precision} the first step's peak is the same at contexts {listed(flat.index)} ({sizes}): "
                f"its fullest "
                "moment is the update, when no activation is left."
            )
        longest = steady.index.max()
        if longest in first.index and steady.loc[longest, "peak"] > 1.02 * first.loc[longest, "peak"]:
            more = (steady.loc[longest, "peak"] - first.loc[longest, "peak"]) * units.MIB
            sentences.append(
                f"At {longest} a steady step needs {units.size(more)} more than the first: optimizer states are "
                f"there while "
                "activations are."
            )
    return sentences


def _mixed(table: pd.DataFrame) -> str | None:
    keys = ["sequence", "phase"]
    plain, mixed = (table[table["precision"] == name] for name in ("float32", "bfloat16"))
    both = plain.merge(mixed, on=keys, suffixes=("", "_mixed")).set_index(keys)
    if both.empty:
        return None
    ratio = both["peak_mixed"] / both["peak"]
    more, less = ratio[ratio > 1.01], ratio[ratio < 0.99]
    copies = units.size(mixed["copies"].max() * units.MIB)
    parts = []
    if len(more):
        (sequence, phase), most = more.idxmax(), more.max()
        parts.append(
            f"raises {len(more)} of {len(ratio)} peaks, by up to {units.percent(most - 1)} ({_PHASES[phase]}, "
            f"{sequence})"
        )
    if len(less):
        (sequence, phase), least = less.idxmin(), less.min()
        parts.append(f"lowers {len(less)}, by up to {units.percent(1 - least)} ({_PHASES[phase]}, {sequence})")
    return (
        f"Mixed precision {listed(parts)}: copies of the weights take {copies}, activations shrink." if parts else None
    )


def explain_timeline(tables: list[pd.DataFrame], allocations: pd.DataFrame, plan: Any) -> Markdown:
    """Say when memory is fullest and of what; list the largest allocations with the line that made them."""
    sentences = [_fullest(table) for table in tables if len(table)]
    if allocations.empty:
        return say(*sentences, "No allocation was recorded.", small=fact(tables[0], "small"))
    lines = ["| MiB | times | phase | line | text |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {units.number(row.size_mib)} | {row.times} | {row.phase} | {_line(row)} |"
        for row in allocations.head(_LISTED).rename(columns={"count": "times"}).itertuples()
    ]
    said = say(*sentences, *_largest(allocations.iloc[0], plan), small=fact(tables[0], "small"))
    return Markdown("\n".join([*lines, "", text(said)]))


def _line(row: Any) -> str:
    """Return an allocation's line and its text; on a GPU backward runs in a thread without any Python."""
    return f"{row.line} | `{row.source}`" if row.line else "– | (autograd's own thread)"


def _fullest(table: pd.DataFrame) -> str:
    top = table.loc[table["allocated_mib"].idxmax()]
    kinds = {"base": "parameters", "activations": "activations and copies of weights"}
    kinds |= {"gradients": "gradients", "optimizer": "optimizer states"}
    shares = {name: top[f"{kind}_mib"] / top["allocated_mib"] for kind, name in kinds.items()}
    ordered = sorted(shares.items(), key=lambda one: -one[1])
    named = listed(f"{name} {units.percent(share)}" for name, share in ordered if share > _SHOWN)
    size = units.size(top["allocated_mib"] * units.MIB)
    return f"In {fact(table, 'precision')} memory is fullest in {top['phase']}, {size}: {named}."


def _largest(top: pd.Series, plan: Any) -> list[str]:
    size, weight = top["size_mib"] * units.MIB, 4 * plan.hidden * plan.inner
    what = (
        "exactly one float32 matrix of the perceptron (hidden × inner × 4 bytes)"
        if size == weight
        else f"not the size of a float32 matrix of the perceptron ({units.size(weight)})"
    )
    residual = units.size(residual_bytes(plan.samples, plan.sequence, plan.hidden))
    return [
        f"The largest allocation takes {units.size(size)}, in {top['phase']}: {what}.",
        f"The residual stream, samples × context × hidden × 4 bytes, takes {residual}.",
    ]


def _unbeaten(rows: pd.DataFrame) -> str:
    """Return the levers in words, the leanest first, with their share of the plain step's memory and time."""
    return listed(
        f"*{row.lever}* ({units.percent(row.peak_ratio)} of the memory, {units.percent(row.time_ratio)} of the time)"
        for row in rows.sort_values("peak_mib").itertuples()
    )


@about_tables
def explain_levers(table: pd.DataFrame) -> Markdown:
    """Say which levers no other beats, what each of them saves and costs, and which ones do not pay."""
    shown = table.dropna(subset=["peak_mib"])
    plain = shown[shown["lever"] == "plain"]
    if plain.empty:
        return say("The plain step did not run: nothing to compare with.", small=fact(table, "small"))
    base = units.size(plain["peak_mib"].iloc[0] * units.MIB)
    useless = shown[(shown["peak_ratio"] > 0.99) & (shown["lever"] != "plain")]
    sentences = [
        f"The plain step needs {base}. No lever beats {_unbeaten(shown[shown['best']])}.",
        f"Of those that leave the weights float32, none beats {_unbeaten(shown[shown['best_exact']])}.",
    ]
    if len(useless):
        sentences.append(f"Alone, these do not lower the peak: {listed(useless['lever'])}.")
    gone = table[table["peak_mib"].isna()]
    if len(gone):
        sentences.append(f"Not measured: {listed(f'{row.lever} ({row.status})' for row in gone.itertuples())}.")
    return say(*sentences, small=fact(table, "small"))
