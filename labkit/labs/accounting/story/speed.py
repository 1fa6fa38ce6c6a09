"""Least batches by mesh and knob → sentences: what bounds the batch, and what lowers it."""

from __future__ import annotations

from math import isfinite

import pandas as pd
from IPython.display import Markdown

from labkit.story import units
from labkit.story.words import listed, say


def explain_batch(bounds: pd.DataFrame, times: pd.DataFrame) -> Markdown:
    """Say from which batch computing covers communication, that this is a least batch, and whether it fits."""
    said = []
    for row in bounds.itertuples(index=False):
        way, tokens, each, gb = row
        if not isfinite(tokens):
            said.append(f"Sent {way}, **no batch is compute-bound**.")
            continue
        least = f"{units.count(round(tokens))} tokens in all, {units.count(round(each))} a device"
        said.append(f"Sent {way}: from **{least}** ({units.number(gb)} GB of memory on each).")
    low, high = times.iloc[0], times.iloc[-1]
    shares = [units.percent(row["math_ms"] / (row["fsdp_ms"] + row["tensor_ms"])) for row in (low, high)]
    grows = low["math_ms"] / low["fsdp_ms"] < high["math_ms"] / high["fsdp_ms"]
    bound = "so the bound is **a least batch**" if grows else "so the bound is a largest batch"
    said.append(
        f"At {units.count(low['tokens'])} tokens computing takes {shares[0]} of communicating's time, at "
        f"{units.count(high['tokens'])} {shares[1]}: {bound}."
    )
    return say(*said)


def explain_knobs(table: pd.DataFrame, splits: pd.DataFrame) -> Markdown:
    """Say, as bullets, which split of the mesh needs the least batch, and which knobs lower or raise it."""
    rest = table.iloc[1:]
    lower, higher = (rest[mask].sort_values("times") for mask in (rest["times"] < 1, rest["times"] > 1))
    same = rest[rest["times"] == 1]
    said = [f"Lower: {_listed(lower)}." if len(lower) else "No knob lowers the batch."]
    said += [f"Higher: {_listed(higher)}."] if len(higher) else []
    said += [f"The same: {listed(same['knob'])}."] if len(same) else []
    per_device = table["in_turn_per_device"]
    kept = rest[(rest["times"] < 1) & (per_device[1:] >= per_device.iloc[0])]
    if len(kept):
        said.append(f"No fewer tokens a device, only in all: {listed(kept['knob'])}.")
    return Markdown(f"- {_splits(splits)}\n- {' '.join(said)}")


def _splits(table: pd.DataFrame) -> str:
    said = []
    for way, column in (("at once", "at_once"), ("in turn", "in_turn")):
        if table[column].isna().all():
            said.append(f"Sent {way}, no split is ever compute-bound.")
            continue
        best = table.loc[table[column].idxmin()]
        said.append(
            f"Sent {way}, {best['fsdp']:g} × {best['tensor']:g} needs the least, "
            f"{units.count(round(best[column]))} tokens."
        )
    never = table[table["at_once"].isna()]["tensor"]
    last = table["tensor"].iloc[-1]
    if len(never):
        said.append(
            f"From {never.min()} tensor shards on a larger batch does not help: activations grow with it as "
            "computing does."
        )
    else:
        said.append(f"Up to {last} tensor shards some batch is enough.")
    return " ".join(said)


def _listed(rows: pd.DataFrame) -> str:
    return listed(f"{row.knob} ({units.times(row.times)})" for row in rows.itertuples())
