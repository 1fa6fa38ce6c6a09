"""Tables → sentences: what takes the memory, what a GB is, which batch is compute-bound, and what was measured."""

from __future__ import annotations

from math import isfinite

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.words import about_tables, listed, say

_STATES = ("parameters", "gradients", "optimizer")
_MANY_GPUS = 512
_NEAR = 0.005  # a label and a driver's size within half a percent are the same
_PRECISIONS = {"float32": "float32", "bfloat16": "bfloat16 with float32 states"}
_POINT = 0.02  # of a single GPU's speed; less than this, or than the spread, is no difference
_FULL = 0.9  # of a single GPU's speed
_WAYS = {"at once": "at the same time", "in turn": "one after the other"}


def both_units(size_bytes: float) -> str:
    """Return a size in both units, each named: 3 518 GB = 3 276 GiB."""
    sizes = {"GB": size_bytes / units.GB, "GiB": size_bytes / units.GIB}
    return " = ".join(f"{units.number(size, 4 if size >= 1000 else 3)} {unit}" for unit, size in sizes.items())


@about_tables
def explain_memory(parts: pd.DataFrame, labels: pd.DataFrame, drivers: pd.DataFrame, over: pd.DataFrame) -> Markdown:
    """Say, as bullets, what takes the memory, what a label's GB is, and on how many shards a device is large enough."""
    bullets = [_kinds(parts), _labels(labels), _drivers(drivers), _shards(over)]
    return Markdown("\n".join(f"- {bullet}" for bullet in bullets if bullet))


def _kinds(parts: pd.DataFrame) -> str:
    sizes = parts.set_index("kind")["bytes"]
    states, tokens = sizes[list(_STATES)].sum(), fact(parts, "tokens")
    token, largest = sizes["activations"] / tokens, sizes.idxmax()
    billions = units.number(fact(parts, "parameters") / 1e9, 4)
    return (
        f"**The largest kind is {largest}: {units.percent(sizes.max() / sizes.sum())} of the memory.** "
        f"{billions} billion parameters at {states / fact(parts, 'parameters'):g} bytes are {both_units(states)}. "
        f"A token leaves {both_units(token)} of activations. "
        f"So activations are as large as the states from {units.count(states / token)} tokens on."
    )


def _labels(labels: pd.DataFrame) -> str:
    counts = [f"{row.devices} {row.reading}" for row in labels.itertuples()]
    sentence = f"The states of {both_units(fact(labels, 'total_bytes'))} need **{counts[0]}**, {listed(counts[1:])}."
    return sentence + (" The reading makes no difference here." if len(set(labels["devices"])) == 1 else "")


def _drivers(drivers: pd.DataFrame) -> str:
    if drivers.empty:
        return ""
    sizes = listed(
        f"{row.gpu} has {units.number(row.label_gb)} GB on the label and {units.number(row.driver_gb, 4)} GB = "
        f"{units.number(row.driver_gib, 4)} GiB by its driver"
        for row in drivers.itertuples()
    )
    if ((drivers["driver_gib"] / drivers["label_gb"] - 1).abs() <= _NEAR).all():
        verdict = (
            "**Here a label's GB is nearly a GiB.** CUDA itself needs some of the memory that the label leaves out."
        )
    elif ((drivers["over_label"] - 1).abs() <= _NEAR).all():
        verdict = "**Here a label's GB is 10⁹ bytes**, as it says."
    else:
        verdict = "Here a label's GB is neither 10⁹ bytes nor a GiB: read the driver's bytes."
    return f"{sizes}. {verdict}"


def _shards(over: pd.DataFrame) -> str:
    size, sentences = fact(over, "device_gb"), []
    for tokens, by_unit in fact(over, "fewest").items():
        load = f"With {units.count(tokens)} tokens per device" if tokens else "Without activations"
        if by_unit["GB"] is None:
            sentences.append(f"{load} no number of shards is enough: the part that is not sharded is too large.")
        else:
            sentences.append(
                f"{load} **{by_unit['GB']} shards** fit below {size} GB ({by_unit['GiB']} below {size} GiB)."
            )
    last = over[over["tokens"] == over["tokens"].max()].iloc[-1]
    share = last["activations"] / last["gb"]
    if last["tokens"] and share > 0.1:
        sentences.append(
            f"At {last['fsdp']:g} shards activations take {units.percent(share)} of a device, because half of them are "
            "never sharded."
        )
    return " ".join(sentences)


@about_tables
def explain_fit(table: pd.DataFrame) -> Markdown:
    """Say which models need sharding of parameters at all, and what the largest needs."""
    fits, precision = table[table["status"] == "ok"], _PRECISIONS[fact(table, "precision")]
    if fits.empty:
        return say(f"In {precision} no number of these GPUs is enough.")
    models = [name for name in dict.fromkeys(table["model"]) if name in set(fits["model"])]
    sentences, before = [f"**Which strategy a model needs** (in {precision}, on the GPUs of this chart):"], set()
    for strategy, rows in fits.groupby("strategy", sort=False):
        new = [name for name in models if name in set(rows["model"]) - before]
        before |= set(new)
        sentences.append(
            f"\n- {strategy} fits {'also ' * (strategy != 'DDP') + listed(new) if new else 'no other model'}."
        )
    largest = fits[fits["model"] == models[-1]]
    least = largest.loc[largest["fewest"].idxmin()]
    sentences.append(
        f"\n\n{models[-1]} needs at least {units.count(least['fewest'])} × {least['gpu']} ({least['strategy']})."
    )
    row = fits.loc[fits["fewest"].idxmax()]
    if row["fewest"] > _MANY_GPUS:
        sentences.append(
            f"{row['model']} needs {units.count(row['fewest'])} × {row['gpu']} ({row['strategy']}). The part that is "
            "not sharded nearly fills that GPU, so **more GPUs do not help there.**"
        )
    return say(*sentences)


def explain_batch(bounds: pd.DataFrame, times: pd.DataFrame) -> Markdown:
    """Say from which batch computing covers communication, that this is a least batch, and whether it fits."""
    sentences = []
    for way, tokens, each, gb in bounds.itertuples(index=False):
        if not isfinite(tokens):
            sentences.append(f"Sent {_WAYS[way]}, **no batch is compute-bound**.")
            continue
        least = f"{units.count(round(tokens))} tokens in all, {units.count(round(each))} per device"
        sentences.append(f"Sent {_WAYS[way]}: from **{least}**. Each device then holds {units.number(gb)} GB.")
    low, high = times.iloc[0], times.iloc[-1]
    shares = [units.percent(row["math_ms"] / (row["fsdp_ms"] + row["tensor_ms"])) for row in (low, high)]
    grows = low["math_ms"] / low["fsdp_ms"] < high["math_ms"] / high["fsdp_ms"]
    sentences.append(
        f"The bound is **a {'least' if grows else 'largest'} batch**: computing takes {shares[0]} of communication's "
        f"time at {units.count(low['tokens'])} tokens and {shares[1]} at {units.count(high['tokens'])}."
    )
    return say(*sentences)


def explain_knobs(table: pd.DataFrame, splits: pd.DataFrame) -> Markdown:
    """Say, as bullets, which split of the mesh needs the least batch, and which knobs lower or raise it."""
    rest = table.iloc[1:]
    bullets = [_splits(splits)]
    for verb, rows in (("lower", rest[rest["times"] < 1]), ("raise", rest[rest["times"] > 1])):
        knobs = (f"{row.knob} ({units.times(row.times)})" for row in rows.sort_values("times").itertuples())
        bullets.append(
            f"**These {verb} the batch**: {listed(knobs)}." if len(rows) else f"No knob would {verb} the batch."
        )
    if len(same := rest[rest["times"] == 1]):
        bullets.append(f"These leave it as it is: {listed(same['knob'])}.")
    per_device = table["in_turn_per_device"]
    if len(kept := rest[(rest["times"] < 1) & (per_device[1:] >= per_device.iloc[0])]):
        bullets.append(f"Fewer tokens in all, but not per device: {listed(kept['knob'])}.")
    return Markdown("\n".join(f"- {bullet}" for bullet in bullets))


def _splits(splits: pd.DataFrame) -> str:
    sentences = []
    for way, column in (("at once", "at_once"), ("in turn", "in_turn")):
        if splits[column].isna().all():
            sentences.append(f"Sent {_WAYS[way]}, no split is ever compute-bound.")
            continue
        best = splits.loc[splits[column].idxmin()]
        sentences.append(
            f"Sent {_WAYS[way]}, **{best['fsdp']:g} × {best['tensor']:g} needs the least batch**, "
            f"{units.count(round(best[column]))} tokens."
        )
    never = splits[splits["at_once"].isna()]["tensor"]
    if len(never):
        sentences.append(
            f"From {never.min()} tensor shards on no batch is compute-bound: activations grow with the batch as fast "
            "as computing does, and take longer."
        )
    else:
        sentences.append(f"Up to {splits['tensor'].iloc[-1]} tensor shards some batch is enough.")
    return " ".join(sentences)


def explain_measured(table: pd.DataFrame) -> Markdown:
    """Say whether the datasheets' bound was enough, then per setting what it reached and what its parts predict."""
    bullets = [_setting(row) for row in table.itertuples()]
    return say(
        "" if table.empty else f"{_lesson(table)}\n\n",
        "\n".join(f"- {bullet}" for bullet in bullets),
        small=fact(table, "small"),
    )


def _setting(row) -> str:
    known = row.bound_tokens == row.bound_tokens
    above = f", {units.times(row.tokens / row.bound_tokens)} the bound" if known else ""
    lost, parts = row.added - row.efficiency, units.percent(row.added)
    compared = f"below the {parts} of its parts" if lost > 0 else f"above the {parts} of its parts: some is hidden"
    if abs(lost) <= max(_POINT, row.spread):
        compared = f"as its parts predict ({parts})"
    return (
        f"**{STRATEGY_NAMES.get(row.strategy, row.strategy)}**, {units.count(row.tokens)} tokens per GPU{above}: "
        f"{units.percent(row.efficiency)} of one GPU's speed, {compared}."
    )


def _lesson(table: pd.DataFrame) -> str:
    known = table[table["bound_tokens"].notna()]
    if known.empty:
        return "No datasheet is known for this machine, so it has no bound."
    above = known[known["tokens"] > known["bound_tokens"]]
    short = above[above["efficiency"] < _FULL]
    if above.empty:
        return "All settings ran below the bound."
    if short.empty:
        return f"**The bound was enough**: above it every setting keeps {units.percent(_FULL)} or more."
    unexplained = short[short["added"] - short["efficiency"] > short["spread"].clip(lower=_POINT)]
    why = (
        "Something that is in none of the parts takes time: a host that launches too slowly, GPUs that wait for each "
        "other, or collectives that slow the math. These data do not say which. A profile may (lab 05)."
        if len(unexplained)
        else "Their parts add up to that: latency, links slower than the datasheet's, or nothing hidden. These data do "
        "not say which."
    )
    share = units.percent(_FULL)
    return (
        f"**The bound is not sufficient**: {len(short)} of {len(above)} settings above it keep less than {share}. {why}"
    )
