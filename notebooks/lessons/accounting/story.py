"""Tables of lab 12 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from math import isfinite, isnan

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.verdict import folded, verdict
from labkit.story.words import as_table, listed
from lessons.accounting import tables

_STATES = ("parameters", "gradients", "optimizer")
_NEAR = 0.005  # a label and a driver's size within half a percent are the same
_POINT = 0.02  # of a single GPU's speed; less than this, or than the spread, is no difference
_FULL = 0.9  # of a single GPU's speed


def largest_kind(parts: pd.DataFrame) -> Markdown:
    """Say what takes most of the memory, and from how many tokens on activations do; takes `parts`."""
    sizes = parts.set_index("kind")["bytes"]
    token = sizes["activations"] / fact(parts, "tokens")
    shown = parts.assign(gb=parts["gb"].round(1), gib=parts["gib"].round(1))
    name = {"optimizer": "the optimizer's states"}.get(sizes.idxmax(), sizes.idxmax())
    most = f"**The largest part is {name}, {units.percent(sizes.max() / sizes.sum())} of the memory.**"
    tokens = units.count(sizes[list(_STATES)].sum() / token)
    return verdict(
        f"{most} Activations are as large as all the rest from {tokens} tokens on.", shown.drop(columns="bytes")
    )


def what_a_label_means(labels: pd.DataFrame, drivers: pd.DataFrame) -> Markdown:
    """Say how many devices each reading of a label asks for, and how the drivers read it; takes `labels`, `drivers`."""
    fewest, most = labels["devices"].min(), labels["devices"].max()
    counted = f"**The reading decides between {fewest} and {most} devices.**"
    if fewest == most:
        counted = "The reading makes no difference here."
    shown = drivers.drop(columns="driver_mib").round(2)
    if drivers.empty:
        return verdict(counted)
    names = listed(drivers["gpu"])
    if ((drivers["driver_gib"] / drivers["label_gb"] - 1).abs() <= _NEAR).all():
        meant = f"On the {names} a label's GB is nearly a GiB: read the driver's bytes."
    elif ((drivers["over_label"] - 1).abs() <= _NEAR).all():
        meant = f"On the {names} a label's GB is 10⁹ bytes, as it says."
    else:
        meant = f"On the {names} a label's GB is neither a GB nor a GiB: read the driver's bytes."
    return verdict(f"{counted} {meant}", shown, summary="Label and driver")


def enough_shards(over: pd.DataFrame) -> Markdown:
    """Say on how many shards a device is large enough; takes `over_devices`."""
    fewest, own = fact(over, "fewest"), fact(over, "own_tokens")
    shown = pd.DataFrame(
        [
            (units.count(tokens), each["GB"] or "none", each["GiB"] or "none", own[tokens] or "none")
            for tokens, each in fewest.items()
        ],
        columns=[
            "tokens per device",
            f"shards, device of {fact(over, 'device_gb')} GB",
            "the same in GiB",
            "in GB, each with its own tokens",
        ],
    )
    tokens, loaded = max(fewest), fewest[max(fewest)]["GB"]
    alone = fewest[min(fewest)]["GB"]
    if loaded is None:
        sentence = f"**With {units.count(tokens)} tokens per device no number of shards is enough.**"
    elif tokens and alone:
        sentence = f"**{alone} shards hold the states, {loaded} also the activations of {units.count(tokens)} tokens.**"
    else:
        sentence = f"**{loaded} shards are enough.**"
    return verdict(f"{sentence} Half of the activations are on every device, however many there are.", shown)


def needed_strategy(table: pd.DataFrame) -> Markdown:
    """Say which strategy a model needs, where more GPUs do not help, and how large the models are; takes `fit`."""
    fits, models = table[table["status"] == "ok"], list(dict.fromkeys(table["model"]))
    if fits.empty:
        return verdict("No number of these GPUs is enough for any of these models.")
    first = {}
    for strategy, rows in fits.groupby("strategy", sort=False):
        first |= {model: strategy for model in models if model in {*rows["model"]} - {*first}}
    shown = pd.DataFrame(
        [
            (strategy, listed(model for model in first if first[model] == strategy))
            for strategy in dict.fromkeys(table["strategy"])
        ],
        columns=["strategy", "first fits"],
    )
    last = list(dict.fromkeys(table["strategy"]))[-1]
    alone = [model for model in first if first[model] == last]
    sentence = f"**Only {last} fits {listed(alone)}.**" if alone else f"**No model here needs {last}.**"
    most = fits.loc[fits["fewest"].idxmax()]
    least = fits[(fits["model"] == most["model"])]["fewest"].min()
    if most["fewest"] > 4 * least:
        count = units.count(most["fewest"])
        sentence += f" Where the chart shows {count} GPUs, what is not sharded nearly fills each: more hardly help."
    said = verdict(sentence, shown, summary="Which strategy first fits which model, on one of these GPUs at least")
    return Markdown(f"{said.data}\n\n{_sizes(table)}")


def _sizes(table: pd.DataFrame) -> str:
    """Return the sizes of a table's models, folded: what `Model` is given, and the parameters that follow."""
    sizes = tables.sizes(fact(table, "models"))
    shown = sizes.rename(columns={"parameters": "billion parameters"}).assign(
        **{"billion parameters": sizes["parameters"] / 1e9},
        kv_heads=sizes["kv_heads"].where(sizes["kv_heads"] > 0, sizes["heads"]),
        tied=sizes["tied"].map({True: "yes", False: "no"}),
    )
    return folded("The models' sizes", as_table(shown))


def least_batch(bound: pd.DataFrame) -> Markdown:
    """Say from which batch on computing covers communication; takes `bound`."""
    row = bound.iloc[0]
    if not isfinite(row["tokens"]):
        return verdict("**No batch is compute-bound.**")
    tokens, each = (units.count(round(row[name])) for name in ("tokens", "tokens_per_device"))
    ms = [units.seconds(row[f"{part}_ms"] / 1e3) for part in ("math", "fsdp", "tensor")]
    shown = pd.DataFrame([ms], columns=["computing", "gathering weights", "exchanging activations"])
    said = f"**Compute-bound from {tokens} tokens on, {each} per GPU: a least batch.**"
    return verdict(said, shown, summary="The three times at the bound")


def best_split(splits: pd.DataFrame) -> Markdown:
    """Say for each GPU which split of the node needs the least batch, and from where on none is enough."""
    sentences = []
    for gpu, rows in splits.groupby("gpu", sort=False):
        enough, never = rows.dropna(), rows[rows["tokens"].isna()]["tensor"]
        if enough.empty:
            sentences.append(f"{gpu}: no split is ever compute-bound.")
            continue
        best = enough.loc[enough["tokens"].idxmin(), "tensor"]
        tail = f"; from Y = {never.min()} on no batch is compute-bound" if len(never) else ""
        sentences.append(f"{gpu}: the least batch is that of Y = {best}{tail}.")
    return verdict(f"**{' '.join(sentences)}**")


def turned_knobs(knobs: pd.DataFrame) -> Markdown:
    """Return the bounds with each knob turned; say which lowers and which raises it most. Takes `knobs`."""
    rest = knobs.iloc[1:]
    lowest, highest = rest.loc[rest["times"].idxmin()], rest.loc[rest["times"].idxmax()]
    best = " or ".join(rest.loc[rest["times"].round(6) == round(lowest["times"], 6), "knob"])
    heads = {"knob": "knob", "tokens": "tokens in all", "tokens_per_device": "per GPU", "times": "× the first row"}
    shown = knobs.rename(columns=heads)
    for column in list(heads.values())[1:3]:
        shown[column] = [units.count(round(tokens)) if isfinite(tokens) else "none" for tokens in shown[column]]
    sentences = [
        f"**Most lowers it: {best}, {units.times(lowest['times'])}.**" if lowest["times"] < 1 else "Nothing lowers it.",
        f"**Most raises it: {highest['knob']}, {units.times(highest['times'])}.**"
        if highest["times"] > 1
        else "Nothing raises it.",
    ]
    return Markdown(f"{as_table(shown)}\n\n{' '.join(sentences)}")


def bound_enough(table: pd.DataFrame) -> Markdown:
    """Show each setting beside its bounds; say whether all above the datasheets' kept their speed, and if not, why not.

    Takes `measured`.
    """
    share = "% of one GPU alone"
    shown = pd.DataFrame(
        {
            "strategy": table["strategy"].map(lambda name: STRATEGY_NAMES.get(name, name)),
            "tokens per GPU and micro-batch": table["tokens"].map(units.count),
            "forward's bound by datasheets, tokens": [
                units.count(round(bound)) if isfinite(bound) else "–" for bound in table["bound_tokens"]
            ],
            "× the bound": (table["tokens"] / table["bound_tokens"]).astype(object).fillna("–"),
            f"its parts added up, {share}": 100 * table["added"],
            f"measured, {share}": [
                f"{units.number(100 * row.efficiency)} ± {units.number(100 * row.spread, 2)}"
                for row in table.itertuples()
            ],
        }
    )
    return Markdown(f"{as_table(shown)}\n\n{verdict(_said_of_bound(table)).data}")


def _said_of_bound(table: pd.DataFrame) -> str:
    above = table[table["tokens"] > table["bound_tokens"]]
    short = above[above["efficiency"] < _FULL]
    if table["bound_tokens"].isna().all():
        return "No datasheet is known for this machine, so it has no bound."
    if above.empty:
        return "All settings ran below the bound."
    if short.empty:
        return f"**The bound was enough**: above it every setting keeps {units.percent(_FULL)} or more."
    beyond = (short["added"] - short["efficiency"] > short["spread"].clip(lower=_POINT)).any()
    cause = "Their parts add up to that."
    if beyond:
        cause = "They keep even less than if nothing hid: a late host, say, is in none of the parts."
    kept = f"{len(short)} of {len(above)} settings above it keep less than {units.percent(_FULL)}"
    return f"**The bound is not sufficient: {kept}.** {cause}"


def derived(published: pd.DataFrame) -> Markdown:
    """Return the derivation of the compute-bound batch, step by step, ours and the report's; takes its figures."""
    steps = tables.derivation(published)
    for whose in ("ours", "report"):
        steps[whose] = ["–" if isnan(value) else units.number(value, 4) for value in steps[whose]]
    steps["same"] = steps["same"].map({True: "✔", False: "✘", "–": "–"})
    return Markdown(as_table(steps))


def in_one_minute(trained: pd.DataFrame) -> Markdown:
    """Return the lesson's rules, each with what it is worth on paper, and in recorded training; takes `measured`."""
    readings = tables.labels()["devices"]
    last = tables.over_devices().iloc[-1]
    share = units.percent(last["activations"] / last["gb"])
    floor = f"on {last['fsdp']:g} shards {share} of what a device holds are activations"
    least = units.count(round(tables.bound()["tokens"].iloc[0]))
    worst = trained.loc[trained["efficiency"].idxmin()]
    above = units.times(worst["tokens"] / worst["bound_tokens"])
    faster = units.times(tables.knobs().set_index("knob").loc["compute twice as fast", "times"])
    rows = [
        (
            "Compute in bytes; name the unit of a number",
            f"{readings.min()} to {readings.max()} devices, by the unit",
            "–",
        ),
        ("What is not sharded is the floor", floor, "–"),
        (
            "The bound is a least batch, and not sufficient",
            f"{least} tokens on 8 × H200",
            f"{units.percent(worst['efficiency'])} of one GPU's speed at {above} the bound",
        ),
        ("A faster chip needs a larger batch", f"twice as fast: {faster} the tokens", "–"),
    ]
    return Markdown(as_table(pd.DataFrame(rows, columns=["rule", "XXL, on paper", "recorded training"])))
