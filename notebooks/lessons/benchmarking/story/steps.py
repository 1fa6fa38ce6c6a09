"""Steps of lab 06 → sentences: what a step takes, what launches and fusion make of it, and who waits for whom."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, resolved, say
from lessons.benchmarking.theory import NAMES, PRECISION_NAMES

_GAIN = 1.05  # a factor below this is no gain
_SAME_LAYER = 1.25  # the most over the least time per layer that still count as one
_EXPLAINED = 0.10  # of a measured time: what the launch model may miss


@about_tables
def explain_steps(table: pd.DataFrame) -> Markdown:
    """Say what a step takes, what TF32 and bfloat16 bring by size, whether 2.7b is below xl, how large the noise is."""
    eager = table[table["mode"] == "eager"]
    steps = eager[eager["phase"] == "step"].set_index(["model", "precision"])["ms"]
    models = list(dict.fromkeys(eager["model"]))
    sentences = [
        f"An eager float32 step takes {_ms(steps[models[0], 'float32'])} (`{models[0]}`) to "
        f"{_ms(steps[models[-1], 'float32'])} (`{models[-1]}`)."
    ]
    for precision in [name for name in ("tf32", "autocast") if (models[0], name) in steps.index]:
        gains = [steps[model, "float32"] / steps[model, precision] for model in models]
        lost = [f"`{model}`" for model, gain in zip(models, gains, strict=True) if gain < _GAIN]
        said = f"{PRECISION_NAMES[precision]} makes it {units.span(gains)} as fast"
        sentences.append(f"{said}; **no gain in {listed(lost)}**." if lost else f"{said}.")
    return say(*sentences, _xl(eager), _noise(eager), _impossible(table), small=fact(table, "small"))


def _xl(eager: pd.DataFrame) -> str | None:
    """Say whether the forward of 2.7b, with fewer layers and more parameters, is below that of xl."""
    rows = eager[(eager["phase"] == "forward") & (eager["precision"] == eager["precision"].iloc[-1])].set_index("model")
    if not {"xl", "2.7b"} <= set(rows.index):
        return None
    xl, larger = rows.loc["xl"], rows.loc["2.7b"]
    said = f"In {PRECISION_NAMES[xl['precision']]} the forward of `xl` takes {_ms(xl['ms'])}, `2.7b`'s"
    said = f"{said} {_ms(larger['ms'])}"
    if not resolved(xl["ms"], larger["ms"], xl["spread_ms"], larger["spread_ms"]):
        return f"{said}: not resolved by these data."
    if larger["ms"] < xl["ms"]:
        each = rows["ms_per_layer"]
        flat = f" A layer takes {units.span(each, units.number)} ms at every size."
        flat = flat if each.max() < _SAME_LAYER * each.min() else ""
        return f"{said}: **fewer layers count for more than more parameters**.{flat}"
    return f"{said}: the larger model is the slower one."


def _noise(eager: pd.DataFrame) -> str:
    share = (eager["spread_ms"] / eager["ms"]).max()
    return (
        f"The half-spread is at most {units.percent(share)} of its median, over {int(eager['count'].min())} iterations."
    )


def _impossible(table: pd.DataFrame) -> str | None:
    wrong = int((table["verdict"] == "impossible").sum())
    return f"**{wrong} times are shorter than this GPU allows.**" if wrong else None


@about_tables
def explain_modes(table: pd.DataFrame, phase: str = "forward") -> Markdown:
    """Say what launches and what fusion make of eager's time, by size, and where compiling gains nothing.

    Takes a table of `modes`.
    """
    rows = table[table["phase"] == phase].dropna(subset=["graph_ms", "compiled_ms", "compiled_graph_ms"])
    if rows.empty:
        return say(
            "A CPU has neither CUDA graphs nor launches: eager is the only mode here.", small=fact(table, "small")
        )
    first, last = rows.iloc[0], rows.iloc[-1]
    sentences = [
        f"Compiling makes the {NAMES[phase]} of `{row['model']}` {units.times(row['compiling'])} as fast as eager; "
        f"without launches (CUDA graph) the same kernels are {units.times(row['launches'])} as fast; fusing them makes "
        f"these {units.times(row['fusion'])} as fast."
        for row in (first, last)
    ]
    bound = rows[rows["launches"] > _GAIN]["model"]
    free = rows[rows["launches"] <= _GAIN]["model"]
    if len(bound):
        sentences.append(f"**Launch-bound in eager**: {listed(f'`{name}`' for name in bound)}.")
    if len(free):
        sentences.append(f"The GPU is the limit in {listed(f'`{name}`' for name in free)}.")
    lost = rows[rows["compiling"] < _GAIN]["model"]
    if len(lost):
        sentences.append(f"No gain from compiling in {listed(f'`{name}`' for name in lost)}.")
    left = rows[rows["compiled_ms"] > _GAIN * rows["compiled_graph_ms"]]["model"]
    if len(left):
        sentences.append(f"Compiled, launches still cost time in {listed(f'`{name}`' for name in left)}.")
    else:
        sentences.append("Compiled, the GPU is the limit in every size.")
    return say(*sentences, small=fact(table, "small"))


@about_tables
def explain_launches(table: pd.DataFrame) -> Markdown:
    """Say what a layer costs host and GPU, where the GPU becomes the limit, and how well the model predicts the sizes.

    Takes a table of `launches`.
    """
    kernels, host_us, gpu_us = (fact(table, f"layer_{name}") for name in ("kernels", "host_us", "gpu_us"))
    each = f"One more layer is {units.number(kernels)} kernels, for which the host takes"
    each, width = f"{each} {units.seconds(host_us / 1e6)}", fact(table, "knee_width")
    if pd.isna(gpu_us):
        note = (
            "A CPU is host and device: it launches nothing and does the work itself, so the model has no meaning here."
        )
        return say(f"{each}.", note, small=fact(table, "small"))
    bound = host_us > gpu_us
    sentences = [
        f"{each} and the GPU {units.seconds(gpu_us / 1e6)}: "
        + ("**launch-bound at any depth**." if bound else "the GPU is the limit at any depth."),
        _each_kernel(table),
    ]
    if width == float("inf"):
        sentences.append("No width of the sweep keeps the GPU busy.")
    else:
        sentences.append(f"**From a width of {units.count(width)} on, the GPU takes longer than the launches.**")
    return say(*sentences, _predicted(table), _host(table), small=fact(table, "small"))


def _host(table: pd.DataFrame) -> str | None:
    """Say where medians are far above the fastest iterations, and that the host's speed changed meanwhile."""
    low, high = fact(table, "reference_low_us"), fact(table, "reference_high_us")
    slow = (table["eager_ms"] / table["fastest_ms"]).max()
    if slow < 1 + _EXPLAINED:
        return None
    return (
        f"Medians are up to {units.times(slow)} the fastest. **The host's own speed changes**: one and the same small "
        f"forward, timed before each, takes {units.number(low)} to {units.number(high)} µs per launch."
    )


def _each_kernel(table: pd.DataFrame) -> str:
    """Say what the host and the GPU take per kernel, in the smallest and in the largest of the five sizes."""
    sizes = table[table["axis"] == "model"]
    first, last = sizes.iloc[0], sizes.iloc[-1]
    gpu = [f"{units.seconds(row['gpu_us'] / 1e6)} in `{row['model']}`" for row in (first, last)]
    host = units.seconds(fact(table, "launch_us") / 1e6)
    return f"Per kernel, the host takes {host} to launch it, and the GPU {listed(gpu)} to run it."


def _predicted(table: pd.DataFrame) -> str:
    sizes = table[table["axis"] == "model"]
    worst = sizes.loc[sizes["error"].abs().idxmax()]
    said = (
        "The longer of kernels × time per launch and the GPU's work predicts the fastest forward of each size within "
        f"{units.percent(abs(worst['error']))} (`{worst['model']}`)"
    )
    within = abs(worst["error"]) <= _EXPLAINED
    return f"{said}: {'as close as' if within else '**further off than**'} the {units.percent(_EXPLAINED)} asked for."


def _ms(value_ms: float) -> str:
    return units.seconds(value_ms / 1e3)
