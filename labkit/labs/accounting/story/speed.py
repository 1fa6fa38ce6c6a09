"""Least batches by mesh and knob → sentences: what bounds the batch, and what lowers it."""

from __future__ import annotations

from math import isfinite

import pandas as pd
from IPython.display import Markdown

from labkit.labs.accounting.story.memory import both
from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, say


def explain_batch(bounds: pd.DataFrame, times: pd.DataFrame) -> Markdown:
    """Say from which batch computing covers communication, that this is a least batch, and whether it fits."""
    sentences = []
    for row in bounds.itertuples(index=False):
        way, tokens, each, gb = row
        if not isfinite(tokens):
            sentences.append(f"Sent {way}, **no batch is compute-bound**.")
            continue
        least = f"{units.count(round(tokens))} tokens in all, {units.count(round(each))} a device"
        sentences.append(f"Sent {way}: from **{least}** ({units.number(gb)} GB of memory on each).")
    low, high = times.iloc[0], times.iloc[-1]
    shares = [units.percent(row["math_ms"] / (row["fsdp_ms"] + row["tensor_ms"])) for row in (low, high)]
    grows = low["math_ms"] / low["fsdp_ms"] < high["math_ms"] / high["fsdp_ms"]
    bound = "so the bound is **a least batch**" if grows else "so the bound is a largest batch"
    sentences.append(
        f"At {units.count(low['tokens'])} tokens computing takes {shares[0]} of communicating's time, at "
        f"{units.count(high['tokens'])} {shares[1]}: {bound}."
    )
    return say(*sentences)


def explain_knobs(table: pd.DataFrame, splits: pd.DataFrame) -> Markdown:
    """Say, as bullets, which split of the mesh needs the least batch, and which knobs lower or raise it."""
    rest = table.iloc[1:]
    lower, higher = (rest[mask].sort_values("times") for mask in (rest["times"] < 1, rest["times"] > 1))
    same = rest[rest["times"] == 1]
    sentences = [f"Lower: {_listed(lower)}." if len(lower) else "No knob lowers the batch."]
    sentences += [f"Higher: {_listed(higher)}."] if len(higher) else []
    sentences += [f"The same: {listed(same['knob'])}."] if len(same) else []
    per_device = table["in_turn_per_device"]
    kept = rest[(rest["times"] < 1) & (per_device[1:] >= per_device.iloc[0])]
    if len(kept):
        sentences.append(f"No fewer tokens a device, only in all: {listed(kept['knob'])}.")
    return Markdown(f"- {_splits(splits)}\n- {' '.join(sentences)}")


def _splits(table: pd.DataFrame) -> str:
    sentences = []
    for way, column in (("at once", "at_once"), ("in turn", "in_turn")):
        if table[column].isna().all():
            sentences.append(f"Sent {way}, no split is ever compute-bound.")
            continue
        best = table.loc[table[column].idxmin()]
        sentences.append(
            f"Sent {way}, {best['fsdp']:g} × {best['tensor']:g} needs the least, "
            f"{units.count(round(best[column]))} tokens."
        )
    never = table[table["at_once"].isna()]["tensor"]
    last = table["tensor"].iloc[-1]
    if len(never):
        sentences.append(
            f"From {never.min()} tensor shards on a larger batch does not help: activations grow with it as "
            "computing does."
        )
    else:
        sentences.append(f"Up to {last} tensor shards some batch is enough.")
    return " ".join(sentences)


def _listed(rows: pd.DataFrame) -> str:
    return listed(f"{row.knob} ({units.times(row.times)})" for row in rows.itertuples())


_DEVICES, _SHARDS, _BATCH = "H100 80GB equivalents", "smallest N_FSDP under 95 GB", "compute-bound batch"


def doubt_report(answers: pd.DataFrame, mistakes: pd.DataFrame, labels: pd.DataFrame, bounds: pd.DataFrame) -> Markdown:
    """Say, as bullets, what agrees, and for each answer that differs which mistake gives just what was printed."""
    table = answers.set_index("quantity")
    right = list(table.index[table["agrees"]])
    lines = [f"The same to the digits printed: {listed(right)}." if right else "No answer agrees."]
    lines += [
        _devices(table.loc[_DEVICES], labels),
        _shards(table.loc[_SHARDS]),
        _batch(table.loc[_BATCH], mistakes, bounds),
    ]
    return Markdown("\n".join(f"- {line}" for line in lines))


def _devices(row: pd.Series, labels: pd.DataFrame) -> str:
    if row["agrees"]:
        return f"{row['printed']:g} devices of 80 GB hold it."
    sentence = f"{both(fact(labels, 'total_bytes'))} take {row['ours']:g} devices of 80 GB, not {row['printed']:g}"
    if not row["mistake"]:
        return f"{sentence}; no mistake tried gives that."
    driver = labels[labels["reading"].str.contains("driver")]
    real = f" By what its driver says it is {driver['devices'].iloc[0]}." if len(driver) else ""
    return (
        f"{sentence}: **GiB were divided by GB**. With the label read as GiB, the same function gives "
        f"{row['mistaken']:g}.{real}"
    )


def _shards(row: pd.Series) -> str:
    if row["agrees"]:
        return f"More than {row['printed']:g} shards are needed."
    sentence = f"More than {row['printed']:g} shards were asked for; {row['ours'] + 1:g} are needed below 95 GB"
    return f"{sentence}: **the same mistake**." if row["mistake"] else f"{sentence}; no mistake tried gives that."


def _batch(row: pd.Series, mistakes: pd.DataFrame, bounds: pd.DataFrame) -> str:
    each, in_all = (
        listed(
            f"{units.count(round(tokens))} ({way})"
            for way, tokens in zip(bounds["weights and activations"], bounds[column], strict=True)
        )
        for column in ("tokens_per_device", "tokens")
    )
    sentence = f"The batch is a least one: {each} tokens a device, {in_all} in all. "
    matching = mistakes[mistakes["is_printed"]]
    if (matching["mistakes"] == "none").any():
        return f"{sentence}The printed {row['printed']:g} is that."
    sentence += f"Printed is at most {row['printed']:g}, **a bound in the wrong direction**"
    if matching.empty:
        return f"{sentence}; none of {len(mistakes)} ways to compute it gives that number."
    one = matching.iloc[0]
    ways = f"one of {len(mistakes)}" if len(matching) == 1 else f"{len(matching)} of {len(mistakes)}"
    return (
        f"{sentence}. The number comes out in {ways} ways to compute it: {one['mistakes']}, sent "
        f"{one['weights and activations']}, {one['batch']}: {units.number(one['gives'], 5)}."
    )
