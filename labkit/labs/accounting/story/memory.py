"""Bytes by kind, devices and labels → sentences: what takes the memory, and what a GB is."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.words import listed, say

_STATES = ("parameters", "gradients", "optimizer")
_HARDLY = 512  # GPUs
_NEAR = 0.005  # a label and a driver's size within half a percent are the same
_PRECISIONS = {"float32": "float32", "bfloat16": "bfloat16 with float32 states"}


def both(size_bytes: float) -> str:
    """Return a size in both units, each named: 3 518 GB = 3 276 GiB."""
    gb, gib = size_bytes / units.GB, size_bytes / units.GIB
    return f"{units.number(gb, _digits(gb))} GB = {units.number(gib, _digits(gib))} GiB"


def _digits(value: float) -> int:
    return 4 if value >= 1000 else 3


def explain_memory(parts: pd.DataFrame, labels: pd.DataFrame, drivers: pd.DataFrame, over: pd.DataFrame) -> Markdown:
    """Say, as bullets, what takes the memory, what a label's GB is, and on how many shards a device is large enough."""
    bullets = [_parts(parts), _labels(labels, drivers), _shards(over)]
    return Markdown("\n".join(f"- {bullet}" for bullet in bullets))


def _parts(table: pd.DataFrame) -> str:
    sizes = table.set_index("kind")["bytes"]
    states, tokens = sizes[list(_STATES)].sum(), fact(table, "tokens")
    each = states / fact(table, "parameters")
    largest, share = sizes.idxmax(), sizes.max() / sizes.sum()
    token = sizes["activations"] / tokens
    billions = units.number(fact(table, "parameters") / 1e9, 4)
    return (
        f"{billions} billion parameters at {each:g} bytes are {both(states)}. "
        f"With the activations of {units.count(tokens)} tokens it is {both(sizes.sum())}. "
        f"The largest kind, **{largest}, is {units.percent(share)} of it**. "
        f"A token leaves {both(token)} for the backward, so activations are as much as the states from "
        f"{units.count(states / token)} tokens on."
    )


def _labels(table: pd.DataFrame, drivers: pd.DataFrame) -> str:
    counts = [f"{row.devices} {row.reading}" for row in table.itertuples()]
    sentence = f"{both(fact(table, 'total_bytes'))} take so many H100s: **{counts[0]}**; {listed(counts[1:])}."
    if len(set(table["devices"])) == 1:
        sentence += " The reading makes no difference here."
    sizes = [
        f"{row.gpu}: {units.number(row.label_gb)} GB on the label, {units.number(row.driver_gb, 4)} GB = "
        f"{units.number(row.driver_gib, 4)} GiB by its driver"
        for row in drivers.itertuples()
    ]
    return " ".join([sentence, *([f"{listed(sizes)}.", _meant(drivers)] if sizes else [])])


def _meant(drivers: pd.DataFrame) -> str:
    over = drivers["driver_gib"] / drivers["label_gb"] - 1
    here = "On this GPU" if len(drivers) == 1 else "On these GPUs"
    if (over.abs() <= _NEAR).all():
        return (
            f"**{here} a label's GB is nearly a GiB**: at 10⁹ bytes it promises too little. CUDA itself needs some of "
            "the rest."
        )
    if ((drivers["over_label"] - 1).abs() <= _NEAR).all():
        return f"**{here} a label's GB is 10⁹ bytes**, as it says."
    return f"{here} a label is neither: read the driver's bytes."


def _shards(table: pd.DataFrame) -> str:
    size, fewest = fact(table, "device_gb"), fact(table, "fewest")
    parts = []
    for tokens, by_unit in fewest.items():
        load = f"With {units.count(tokens)} tokens on each" if tokens else "Without activations"
        if by_unit["GB"] is None:
            parts.append(f"{load} no number of shards is enough: what is not sharded is too much.")
            continue
        parts.append(f"{load} **{by_unit['GB']} shards** fit below {size} GB; were {size} GiB meant, {by_unit['GiB']}.")
    last = max(fewest)
    rows = table[table["tokens"] == last]
    share = rows["activations"].iloc[-1] / rows["gb"].iloc[-1]
    many = rows["fsdp"].iloc[-1]
    if last and share > 0.1:
        parts.append(f"At {many} shards activations are {units.percent(share)} of a device: half of them never shrink.")
    return " ".join(parts)


def explain_fit(table: pd.DataFrame) -> Markdown:
    """Say which models need sharding of parameters at all, and what the largest need."""
    ok = table[table["status"] == "ok"]
    able = [name for name, rows in table.groupby("model", sort=False) if rows["status"].eq("ok").any()]
    if not able:
        return say(f"In {_PRECISIONS[fact(table, 'precision')]} no number of these GPUs is enough.")
    by = {
        strategy: [name for name in able if name in set(rows["model"])]
        for strategy, rows in ok.groupby("strategy", sort=False)
    }
    names = list(by)
    sentences = [f"In {_PRECISIONS[fact(table, 'precision')]}, on some GPU of this table:"]
    for before, strategy in zip([None, *names], names, strict=False):
        new = [name for name in by[strategy] if before is None or name not in by[before]]
        sentences.append(
            f"{strategy} fits {listed(new) if before is None else 'besides ' + listed(new)};"
            if new
            else f"{strategy} fits no further model;"
        )
    sentences[-1] = sentences[-1].replace(";", ".")
    last = ok[ok["model"] == able[-1]]
    least = last.loc[last["fewest"].idxmin()]
    sentences.append(
        f"{able[-1]} takes {units.count(least['fewest'])} × {least['gpu']} at least ({least['strategy']})."
    )
    if len(hardly := ok[ok["fewest"] > _HARDLY]):
        row = hardly.loc[hardly["fewest"].idxmax()]
        sentences.append(
            f"{units.count(row['fewest'])} × {row['gpu']} for {row['model']} ({row['strategy']}) means that what is "
            "not sharded all but fills the GPU: **more GPUs are no help there.**"
        )
    return say(*sentences)


_POINT = 0.02  # of a single GPU's speed; less than this, or than the spread, is no difference
_FULL = 0.9  # of a single GPU's speed


def explain_measured(table: pd.DataFrame) -> Markdown:
    """Say, a strategy, how far above the datasheets' bound it ran, what it reached, and whether its parts say so."""
    bullets = [_strategy(str(name), rows) for name, rows in table.groupby("strategy", sort=False)]
    return say(
        "\n".join(f"- {bullet}" for bullet in bullets),
        "" if table.empty else f"\n\n{_lesson(table)}",
        small=fact(table, "small"),
    )


def _strategy(strategy: str, rows: pd.DataFrame) -> str:
    settings = []
    for row in rows.itertuples():
        above = (
            f", {units.times(row.tokens / row.bound_tokens)} the bound," if row.bound_tokens == row.bound_tokens else ""
        )
        lost = row.added - row.efficiency
        why = (
            "as its parts add up to"
            if abs(lost) <= max(_POINT, row.spread)
            else f"less than its parts add up to ({units.percent(row.added)})"
            if lost > 0
            else f"more than its parts add up to ({units.percent(row.added)}): some is hidden"
        )
        settings.append(
            f"{units.count(row.tokens)} tokens a GPU{above} keep {units.percent(row.efficiency)} of one GPU's "
            f"speed, {why}"
        )
    return f"**{STRATEGY_NAMES.get(strategy, strategy)}**: {listed(settings)}."


def _lesson(table: pd.DataFrame) -> str:
    known = table[table["bound_tokens"].notna()]
    if known.empty:
        return "No datasheet is known for this machine, so it has no bound."
    above = known[known["tokens"] > known["bound_tokens"]]
    short = above[above["efficiency"] < _FULL]
    if above.empty:
        return "All of it ran below the bound."
    if short.empty:
        return f"Above the bound every setting keeps {units.percent(_FULL)} or more: the bound was enough."
    unexplained = short[short["added"] - short["efficiency"] > short["spread"].clip(lower=_POINT)]
    why = (
        "Something in no part is lost: a host that issues too slowly, GPUs that wait for one another, or collectives "
        "that slow the math. These data do not say which; a profile may (lab 05)."
        if len(unexplained)
        else "Their parts, one after the other, add up to that: latency, slower links than the datasheet's, or nothing "
        "hidden. These data do not say which."
    )
    return (
        f"**The bound is not sufficient**: {len(short)} of {len(above)} settings above it keep less than "
        f"{units.percent(_FULL)}. {why}"
    )
