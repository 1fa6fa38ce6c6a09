"""Steps of lab 06 → sentences: what the first iterations do, what a step takes, and who waits for whom."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.labs.benchmarking.theory import NAMES, PRECISION_NAMES
from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, resolved, say

_SETTLED = 0.10  # of the later median: an iteration this near is like them
_GAIN = 1.05  # a factor below this is no gain
_EXPLAINED = 0.10  # of a measured time: what the launch model may miss
_ONE_CALL = 0.7  # of the extra time of all calls: one of them makes it
_NAMED = 4  # events that a sentence names


def explain_iterations(table: pd.DataFrame, dropped: pd.DataFrame) -> Markdown:
    """Say how much longer a first iteration takes, when they settle, and what warm-ups do to mean and median.

    Takes tables of `iterations` and `warm_ups`.
    """
    first = table[table["iteration"] == 0].set_index("model")["times_later"]
    worst, phase = first.idxmax(), NAMES[fact(table, "phase")]
    sentences = [
        f"The first {phase} of `{worst}` takes {units.times(first[worst])} the median of the later ones"
        + (", and it is the first work of this process." if worst == table["model"].iloc[0] else ".")
    ]
    others = first.drop(worst)
    if len(others):
        sentences.append(f"In the other sizes the first takes {units.span(others)} the later median.")
    settled = {model: _settled(rows) for model, rows in table.groupby("model", sort=False)}
    latest = max(settled.values())
    if latest >= int(table["iteration"].max()):
        sentences.append(f"Iterations do not settle within {units.percent(_SETTLED)}: the machine is noisy.")
    else:
        sentences.append(f"From iteration {latest} on, every one is within {units.percent(_SETTLED)} of that median.")
    return say(*sentences, *_warm_ups(dropped), small=fact(table, "small"))


def _settled(rows: pd.DataFrame) -> int:
    """Return the first iteration from which all are near the later median."""
    far = rows[(rows["times_later"] - 1).abs() > _SETTLED]["iteration"]
    return int(far.max()) + 1 if len(far) else 0


def _warm_ups(table: pd.DataFrame) -> list[str]:
    """Say what dropping iterations does to mean and standard deviation, and what it does to the median."""
    sentences = []
    for phase, rows in table.groupby("phase", sort=False):
        rows, name = rows.set_index("warm_ups"), NAMES[phase]
        none, most = rows.iloc[0], rows.iloc[-1]
        sentences.append(
            f"Of `{fact(table, 'model')}`, {name}: without a warm-up {_mean(none)}, after {rows.index[-1]} of them "
            f"{_mean(most)}; the median goes from {_ms(none['median_ms'])} to {_ms(most['median_ms'])}."
        )
    wide = table.pivot_table(index="phase", columns="warm_ups", values=["mean_ms", "median_ms"], aggfunc="first")
    first, last = table["warm_ups"].min(), table["warm_ups"].max()
    moved = {name: (wide[name, first] / wide[name, last] - 1).abs().max() for name in ("mean_ms", "median_ms")}
    if moved["mean_ms"] > moved["median_ms"]:
        sentences.append(
            f"**The mean moves by up to {units.percent(moved['mean_ms'])}, the median by "
            f"{units.percent(moved['median_ms'])}**: a few slow iterations decide a mean, not a median."
        )
    else:
        sentences.append("The first iterations do not move the mean more than the median.")
    return sentences


def _mean(row: pd.Series) -> str:
    return f"{units.number(row['mean_ms'])} ± {units.number(row['std_ms'], 2)} ms"


def explain_first_calls(events: pd.DataFrame, iterations: pd.DataFrame) -> Markdown:
    """Say what the first iteration does that later ones do not: by kind, by event, with allocations and clocks.

    Takes tables of `first_calls` and `first_iterations`.
    """
    own = iterations
    later = own["ms"].iloc[2:].median()
    extra = own["ms"].iloc[0] - later
    sentences = [
        f"Under the profiler, the first step takes {_ms(own['ms'].iloc[0])}, the second {_ms(own['ms'].iloc[1])}, the "
        f"later ones {_ms(later)}."
    ]
    if extra <= 0:
        return say(*sentences, "**Here the first step is no slower.**", small=fact(iterations, "small"))
    by_kind = events.groupby("kind")["extra_ms"].sum().sort_values(ascending=False)
    parts = [f"{kind} {_ms(ms)}" for kind, ms in by_kind.items() if ms > 0.02 * extra]
    sentences.append(f"What only the first one has, by what the host does: {listed(parts)}.")
    top = events[(events["event"] != "other") & (events["kind"] != "Python") & (events["extra_ms"] > 0)].head(_NAMED)
    named = [f"`{row.event}` ({_ms(row.extra_ms)}{_once(row)})" for row in top.itertuples()]
    sentences.append(f"Most of it lies in {listed(named)}.")
    if (asked := own["device_allocations"]).notna().any():
        sentences.append(
            f"The allocator asks the driver for memory {units.count(asked.iloc[0])} times in it, "
            f"{units.count(asked.iloc[1])} times in the second step, {units.count(asked.iloc[2:].sum())} times later."
        )
    return say(*sentences, _clocks(own["sm_mhz"]), small=fact(iterations, "small"))


def _once(row) -> str:
    """Say where one call of many makes most of the extra time: it sets something up for all later ones."""
    return f", nearly all in one of {row.calls_first} calls" if _alone(row) else ""


def _alone(row) -> bool:
    return row.calls_first > 1 and row.longest_ms > _ONE_CALL * row.extra_ms


def _clocks(mhz: pd.Series) -> str | None:
    if mhz.isna().any():
        return None
    rise = mhz.iloc[-1] / mhz.iloc[0] - 1
    said = (
        f"The GPU's clock is {units.count(mhz.iloc[0])} MHz after the first step, {units.count(mhz.iloc[-1])} at last"
    )
    return f"{said}: {'**it was still rising**' if rise > 0.02 else 'the clock is not what makes the first one slow'}."


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
        return f"{said}: **fewer layers count for more than more parameters**."
    return f"{said}: the larger model is the slower one."


def _noise(eager: pd.DataFrame) -> str:
    share = (eager["spread_ms"] / eager["ms"]).max()
    return (
        f"The half-spread is at most {units.percent(share)} of its median, over {int(eager['count'].min())} iterations."
    )


def _impossible(table: pd.DataFrame) -> str | None:
    wrong = int((table["verdict"] == "impossible").sum())
    return f"**{wrong} times are shorter than this GPU allows.**" if wrong else None


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
    left = rows[rows["compiled_ms"] > _GAIN * rows["compiled_graph_ms"]]["model"]
    if len(left):
        sentences.append(f"Compiled, launches still cost time in {listed(f'`{name}`' for name in left)}.")
    else:
        sentences.append("Compiled, the GPU is the limit in every size.")
    return say(*sentences, small=fact(table, "small"))


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
        f"A launch costs the host {units.seconds(fact(table, 'launch_us') / 1e6)}.",
    ]
    if width == float("inf"):
        sentences.append("No width of the sweep keeps the GPU busy.")
    else:
        sentences.append(f"**From a width of {units.count(width)} on, the GPU takes longer than the launches.**")
    return say(*sentences, _predicted(table), small=fact(table, "small"))


def _predicted(table: pd.DataFrame) -> str:
    sizes = table[table["axis"] == "model"]
    worst = sizes.loc[sizes["error"].abs().idxmax()]
    said = (
        "The longer of kernels × time per launch and the GPU's work predicts the five sizes within "
        f"{units.percent(abs(worst['error']))} (`{worst['model']}`)"
    )
    within = abs(worst["error"]) <= _EXPLAINED
    return f"{said}: {'as close as' if within else '**further off than**'} the {units.percent(_EXPLAINED)} asked for."


def _ms(value_ms: float) -> str:
    return units.seconds(value_ms / 1e3)
