"""What epochs, their parts and their all-reduces say about scaling."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.training import explain_knobs as explain_knobs
from labkit.story.words import about_tables, listed, resolved, say

EXPLAINED = 0.03  # of an epoch: what no part may leave unexplained
AGREE_POINTS = 5.0  # of a step: by how much the three ways may differ
_WAYS = {"steps": "two step times", "trace": "the trace", "hooks": "hooks"}
_DUE = 0.1  # of the formula: how near a number of steps must be
_NEAR = 0.1  # of a line's promise
_PARTS = {
    "input": "waiting for images",
    "copy": "host-to-device copies",
    "forward": "forward",
    "backward": "backward",
    "exposed": "the exposed all-reduce",
    "optimizer": "the optimizer",
    "rest": "what no part explains",
}


@about_tables
def explain_scaling(table: pd.DataFrame, fits: pd.DataFrame) -> Markdown:
    """Say how efficient the most GPUs are under each law, and which share of the work does not divide."""
    small = fact(table, "small")
    most = table["ranks"].max()
    if most == 1:
        return say("One GPU scales to nothing: speed-up needs two GPUs at least.", small=small)
    sentences = []
    for law, named in (("weak", "With each GPU's batch fixed"), ("strong", "With the batch over all GPUs fixed")):
        own = table[(table["law"] == law) & (table["ranks"] == most) & table["efficiency"].notna()]
        if own.empty:
            continue
        best, worst = own.loc[own["efficiency"].idxmax()], own.loc[own["efficiency"].idxmin()]
        efficiency = units.percent(best["efficiency"])
        said = f"{named}, {most} GPUs reach {units.times(best['speedup'])} one GPU's rate ({efficiency} efficiency"
        said += f" at batch {best['fixed']})" if law == "weak" else f", {best['fixed']} images a step)"
        if len(own) > 1:
            said += f"; the least is {units.percent(worst['efficiency'])}, at batch {worst['fixed']}"
        sentences.append(f"{said}.")
    return say(*sentences, _serial(fits), _steps(table), small=small)


def _serial(fits: pd.DataFrame) -> str | None:
    strong = fits[fits["law"] == "strong"]
    if strong.empty:
        return None
    row = strong.iloc[0]
    interval = f"the points allow {units.span((row['least'], row['most']), lambda share: f'{100 * share:.1f} %')}"
    if row["most"] < 0:
        return f"The speed-up exceeds the number of GPUs ({interval}): **no serial share explains that**."
    if row["least"] <= 0 <= row["most"]:
        return f"Amdahl's serial share is not resolved from 0: {100 * row['share']:.1f} %, where {interval}."
    if row["share"] >= 1:
        return f"**More GPUs are slower than one**: Amdahl's serial share is {100 * row['share']:.1f} %; {interval}."
    bound = f", so no number of GPUs exceeds {units.times(1 / row['share'])}" if row["share"] > 0 else ""
    return f"Amdahl's serial share is **{100 * row['share']:.1f} %**; {interval}{bound}."


def _steps(table: pd.DataFrame) -> str:
    """Say whether the steps that a rank does in an epoch fall as the GPUs grow."""
    wrong, counted = [], []
    for batch, own in table[table["law"] == "weak"].groupby("fixed"):
        steps = own.groupby("ranks")["steps"].first()
        told = f"{listed(f'{count:.0f}' for count in steps)} at batch {batch}"
        counted.append(told)
        if any(abs(count * ranks / steps[1] - 1) > _DUE for ranks, count in steps.items()):
            wrong.append(told)
    on = listed(f"{ranks:.0f}" for ranks in sorted(set(table["ranks"])))
    if wrong:
        return f"**A rank's steps do not divide by the GPUs**: on {on} they are {listed(wrong)}."
    return f"A rank's steps divide by the GPUs: on {on} they are {'; '.join(counted)}."


@about_tables
def explain_parts(table: pd.DataFrame) -> Markdown:
    """Say whether the parts explain every epoch, what the slowest setting waits for, and what the loader costs."""
    worst = table.loc[table["rest_share"].idxmax()]
    setting = f"{_setting(worst)}, {worst['loader']} loader"
    share = units.percent(worst["rest_share"])
    sentences = [
        f"The parts explain every epoch to within {share}."
        if worst["rest_share"] <= EXPLAINED
        else f"**{share} of an epoch is not explained** ({setting})."
    ]
    for loader, own in table.groupby("loader", sort=False):
        waits = own["input_s"] / own["seconds"]
        row = own.loc[waits.idxmax()]
        name = "torch's DataLoader" if loader == "host" else "images that lie on the device"
        sentences.append(
            f"With {name}, waiting for images is {units.span(waits, units.percent)} of an "
            f"epoch, most at {_setting(row)}."
        )
    several = table[table["ranks"] > 1]
    if len(several):
        exposed = several["exposed_s"] / several["seconds"]
        row = several.loc[exposed.idxmax()]
        sentences.append(
            f"The exposed all-reduce is {units.span(exposed, units.percent)}, most at {_setting(row)}: **it and the "
            "waiting are two figures.**"
        )
    return say(*sentences, small=fact(table, "small"))


@about_tables
def explain_exchange(table: pd.DataFrame, line: pd.DataFrame, data_parallel: pd.DataFrame | None = None) -> Markdown:
    """Say what the all-reduce costs, by three ways and beside lab 09's line, and what DataParallel costs.

    Takes `exchange`, `beside_line` and `data_parallel` of one run.
    """
    small = fact(table, "small")
    several = table[table["ranks"] > 1]
    if several.empty:
        return say("One rank exchanges nothing: its all-reduce is a call without a transfer.", small=small)
    apart = several["apart_points"].max()
    row = several.loc[several["apart_points"].idxmax()]
    where = _setting(row)
    if apart <= AGREE_POINTS:
        first = f"The three ways agree within {units.number(apart, 2)} points of a step (largest at {where})."
    else:
        known = {way: row[f"{way}_share"] for way in _WAYS if pd.notna(row[f"{way}_share"])}
        told = listed(f"{_WAYS[way]} {units.percent(share)}" for way, share in known.items())
        noise = 100 * row["spread_steps_ms"] / row["step_ms"]
        first = (
            f"**The three ways differ by {units.number(apart, 2)} points** at {where}: {told}; two step times alone "
            f"are uncertain by {units.number(noise, 2)} points. {_why(row)}"
        )
    hidden = several["hidden_share"]
    second = (
        f"The backward hides {units.span(hidden, units.percent)} of what the same "
        f"all-reduces take alone ({units.seconds(several['alone_ms'].min() / 1e3)} to "
        f"{units.seconds(several['alone_ms'].max() / 1e3)})."
    )
    return say(first, second, _line(line), _data_parallel(data_parallel), small=small)


def _line(table: pd.DataFrame) -> str:
    """Say whether the gradients' all-reduces run at the rate that lab 09's line promises."""
    known = table[table["line_ms"].notna() & (table["ranks"] > 1)]
    size = units.size(table["sent_bytes"].max())
    if known.empty:
        return f"A step sends {size} of gradients; lab 09 has no line for these ranks."
    least, most = known["over_line"].min(), known["over_line"].max()
    rates = units.span(known["bus_gb_per_s"], units.rate)
    said = f"A step's {size} of gradients travel at a bus bandwidth of {rates}, alone"
    if max(abs(least - 1), abs(most - 1)) <= _NEAR:
        return f"{said}: what lab 09's line promises for these calls."
    direction = "longer" if most > 1 + _NEAR else "shorter"
    taken = f"they take {units.span(known['over_line'])} the time of lab 09's line"
    return f"{said}; {taken}, **{direction} than promised.**"


def _why(row: pd.Series) -> str:
    """Say why one way shows more than the others do."""
    ways = {way: row[f"{way}_share"] for way in _WAYS if pd.notna(row[f"{way}_share"])}
    reasons = {
        "steps": "`no_sync` also leaves out the broadcasts of buffers and the copies into buckets, so two step times "
        "contain more than the all-reduce.",
        "trace": "In the trace a kernel that waits for the other ranks counts as communication, and the profiler slows "
        "the host, so that ranks wait longer.",
        "hooks": "Hooks see the wait of the rank that is early as well.",
    }
    least = min(ways.values())
    return " ".join(reasons[way] for way, share in ways.items() if 100 * (share - least) > AGREE_POINTS)


def _data_parallel(table: pd.DataFrame | None) -> str | None:
    """Say how DataParallel, one process for all GPUs, compares with DDP."""
    if table is None:
        return None
    if table.empty:
        return "DataParallel was not measured: it needs two GPUs in one process."
    clear = all(resolved(row.dp_ms, row.ddp_ms, row.spread_dp_ms, row.spread_ddp_ms) for row in table.itertuples())
    said = f"DataParallel's step takes {units.span(table['times'])} DDP's"
    if clear and table["times"].min() > 1:
        copies = "one process copies the model to all GPUs, scatters the batch and gathers the results in every step"
        return f"**{said}**: {copies}."
    return f"{said}." if clear else f"{said}; not all of these differences are resolved."


@about_tables
def explain_messages(table: pd.DataFrame) -> Markdown:
    """Say what DDP sends besides gradients, when, and what two switches save."""
    if fact(table, "ranks") == 1:
        return say("With one rank there is nobody to send to: the calls below reach only their own process.")
    phases = {str(phase): own.set_index("collective") for phase, own in table.groupby("phase", sort=False)}
    steady, made = phases.get("third step"), phases.get("construction")
    if steady is None or made is None:
        return say("No step was watched.")
    purpose = "the parameters' shapes, to compare them, and the weights of rank 0"
    sentences = [f"When it is made, DDP calls {_calls(made)}: {purpose}."]
    besides = steady.drop("all-reduce", errors="ignore")
    gradients = steady["sent_bytes"].get("all-reduce", 0)
    if len(besides):
        share = besides["sent_bytes"].sum() / gradients if gradients else float("nan")
        sentences.append(f"Besides gradients, each step has {_calls(besides)}, {units.percent(share)} of the bytes.")
    else:
        sentences.append("Besides gradients, a step sends nothing.")
    second = phases.get("second step")
    if second is not None and (more := second["calls"].sum() - steady["calls"].sum()) > 0:
        sentences.append(f"The second step calls {more} more: the buckets are rebuilt in the order of the gradients.")
    quiet = phases.get("a step under no_sync")
    if quiet is not None:
        kept = quiet["calls"].get("all-reduce", 0)
        sentences.append("Under `no_sync` no gradient is sent." if not kept else "**`no_sync` sends gradients.**")
    return say(*sentences, small=fact(table, "small"))


def _setting(row: pd.Series) -> str:
    """Return GPUs and images per GPU, as the charts name a setting: 4 × 512."""
    return f"{int(row['ranks'])} × {int(row['gpu_batch'])}"


def _calls(own: pd.DataFrame) -> str:
    return listed(f"{row.calls} × {row.Index} ({units.size(row.sent_bytes)})" for row in own.itertuples())


@about_tables
def explain_roof(table: pd.DataFrame) -> Markdown:
    """Say what each knob brought, and how much of the GPU's matrix rate the fastest rung uses; takes `ladder`."""
    said = explain_knobs(table).data or ""
    known = table[table["roof_share"].notna()]
    if known.empty:
        return say(said)
    best = known.loc[known["images_per_s"].idxmax()]
    return say(
        said,
        f"The fastest rung uses {units.percent(best['roof_share'])} of the datasheet's rate at its precision: small "
        "images leave most of the matrix units idle."
        if best["roof_share"] < 0.5
        else f"The fastest rung uses {units.percent(best['roof_share'])} of the datasheet's rate at its precision.",
    )
