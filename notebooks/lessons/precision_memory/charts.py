"""Tables of lab 07 → figures: this run first, the recorded one beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, ledgers
from labkit.charts.ledgers import memory_layers
from labkit.charts.parts import Layer, beside, close, distinct, guessed, lines, own_scales, panel_each, rows, run_panels
from labkit.provenance import fact, is_recorded, where
from labkit.story import units
from labkit.theory.sizes import MIB
from labkit.theory.step_memory import ITEMS
from lessons.precision_memory.theory.floats import FORMATS, STEPS, VALUE, WAYS
from lessons.precision_memory.theory.memory import LEVERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMAT_COLORS = dict(zip(FORMATS, (canvas.SERIES[n] for n in (0, 4, 3, 2, 1, 6)), strict=True))
_FORMAT_LOOKS: dict[str, Any] = {name: {"color": color, "lw": 2} for name, color in FORMAT_COLORS.items()}
_FORMAT_LOOKS["tf32"]["lw"] = 6  # float16 has as many digits and lies on it
PRECISION_NAMES = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16 mixed"}
_RUNNING = ("float32 + float16", "float16 + float16", "bfloat16 + bfloat16")  # sums whose course is drawn
_SEEN = 0.01  # of the longest bar: a shorter part would be named and never visible
_HOLLOW: Any = {"marker": "D", "s": 80, "facecolors": "none", "edgecolors": canvas.INK, "zorder": 2}
_LEAST_SHARE = 1e-4  # of the gradients: rarer sizes are not drawn


def spacing_chart(table: pd.DataFrame) -> Figure:
    """The distance between neighbouring numbers by their size, a line per format; half of 0.01 is marked."""
    figure, ax = canvas.canvas(height=4.2)
    lines(ax, table, "value", "spacing", "format", _FORMAT_LOOKS, drawstyle="steps-post")
    ax.axhline(2 * VALUE, color=canvas.INK, ls=(0, (3, 2)), lw=1)
    text = "above 0.02, adding 0.01 changes nothing"
    ax.text(0.01, 2 * VALUE, text, transform=ax.get_yaxis_transform(), va="bottom", fontsize=9)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set(title="Spacing of floats: a few digits, at any size")
    ax.set(xlabel="number (log)", ylabel="distance to the next number (log)")
    ax.grid(axis="both")
    return close(figure, table, note="a flat left end: subnormal numbers, the smaller, the fewer digits · ", columns=6)


def sums_chart(running: pd.DataFrame, ends: pd.DataFrame, guess: Any = None) -> Figure:
    """Left the running sum of 0.01, by simulated rounding; right the error of every way's end, torch's of this run.

    Takes `running_sums` and `sums`; `guess` is a predicted end of the bfloat16 sum.
    """
    figure, (left, right) = canvas.canvas(2, width=11.5, height=4.2)
    for way in _RUNNING:
        sums = running[running["way"] == way]
        left.plot(sums["step"], sums["total"], color=FORMAT_COLORS[WAYS[way][0]], lw=2, label=way)
    if (value := guessed(guess)) is not None:
        left.axhline(value, color=canvas.PREDICTED, ls=(0, (3, 2)), lw=1.6, label="your prediction")
    left.set(title="0.01, a thousand times", xlabel="terms added", ylabel="sum")
    left.grid(axis="y")
    places = rows(right, list(ends["way"]), fontsize=9)
    errors = ends["error"].abs()
    right.plot(errors, places, "D", ms=8, mfc="none", color=canvas.THEORY, label="simulated rounding")
    torchs = (ends["torch"] - VALUE * STEPS).abs()
    right.plot(torchs, places, "o", ms=4, color=canvas.MEASURED, label="torch, this run")
    right.set_xlim(errors[errors > 0].min() / 4, 4 * errors.max())
    canvas.logarithmic(right.xaxis)
    for place in (place for place, error in zip(places, errors, strict=True) if error == 0):
        right.text(0.02, place, "no error", transform=right.get_yaxis_transform(), va="center", fontsize=9)
    right.set(title="Error of the sum", xlabel="distance from 10 (log)")
    return close(figure, running, ends, columns=6)


def scaling_chart(*runs: tuple[pd.DataFrame, pd.DataFrame]) -> Figure:
    """A row per run: left the gradients by their power of two, with what float16 can hold; right the loss scale.

    Takes a pair of tables per run: `gradients` and `scaling`.
    """
    runs = distinct(runs)
    figure, grid = canvas.canvas(2, len(runs), height=0.9 + 3 * len(runs), width_ratios=(3, 2), squeeze=False)
    half = FORMATS["float16"]
    least, normal, most = (math.log2(value) for value in (half.least, half.least_normal, half.largest))
    seen = pd.concat([histogram[histogram["share"] > _LEAST_SHARE] for histogram, _ in runs])
    for (left, right), (histogram, course) in zip(grid, runs, strict=True):
        left.axvspan(normal, most, color="#E7F2EC", lw=0, label="float16, all digits")
        left.axvspan(least - 1, normal, color="#F4F4E4", lw=0, label="float16, fewer digits")
        for of, color in (("activations", canvas.SERIES[4]), ("weights", canvas.SERIES[0])):
            bins = histogram[histogram["of"] == of]
            style = {"color": color, "lw": 2, "drawstyle": "steps-mid", "label": f"gradients of {of}"}
            left.plot(bins["exponent"], 100 * bins["share"], **style)
        left.set(title=f"{where(histogram)}: float32 gradients at the start", ylabel="% of the gradients")
        left.set(xlabel="size of the gradient, power of two", ylim=(0, None))
        left.set_xlim(min(seen["exponent"].min(), least - 2), most + 1)
        _scale(right, course[course["way"] == "float16 scaled"])
    return close(figure, *(table for pair in runs for table in pair))


def _scale(ax: Axes, course: pd.DataFrame) -> None:
    ax.plot(course["step"], course["scale"], color=canvas.INK, lw=1.6, drawstyle="steps-post")
    skipped = course[course["skipped"]]
    style = {"ms": 7, "color": FORMAT_COLORS["float16"], "label": "overflow: step skipped"}
    ax.plot(skipped["step"], skipped["scale"], "x", **style)
    ax.set_yscale("log", base=2)
    ax.locator_params(axis="x", integer=True)
    ax.set(title="The scale", xlabel="step", ylabel="loss scale (log)")
    ax.grid(axis="y")


def ledger_chart(*tables: pd.DataFrame) -> Figure:
    """Steady steps: a bar by item per context, as the formula has it; diamonds are peaks, hollow ones recorded ones.

    A panel per precision; a run of another size than the recorded one has panels of its own. A context that ran out of
    memory says so.
    """
    shown = run_panels(tables[0] if tables[1:] else None, tables[-1], "parameters")
    fronts = [layers[-1].table for layers in shown]
    contexts = [sorted({*front["sequence"], *(sequence for _, sequence in fact(front, "failed"))}) for front in fronts]
    precisions = list(dict.fromkeys(tables[0]["precision"]))
    figure, grid = canvas.canvas(
        len(precisions),
        len(shown),
        height=1.1 + sum(0.9 + 0.34 * len(rows_of) for rows_of in contexts),
        squeeze=False,
        sharey="row",
        sharex="row",
        gridspec_kw={"height_ratios": [2 + len(rows_of) for rows_of in contexts]},
    )
    for axes, layers, sequences in zip(grid, shown, contexts, strict=True):
        steps = [layer.table[layer.table["phase"] == "steady step"] for layer in layers]
        most = max(max(table["peak"].max(), table["predicted"].max()) for table in steps)
        scale, unit = ledgers.memory_unit(most)
        for ax, precision in zip(axes, precisions, strict=True):
            of_precision = [table[table["precision"] == precision].set_index("sequence") for table in steps]
            places, front = rows(ax, sequences), of_precision[-1].reindex(sequences)
            seen = [item for item in ITEMS if steps[-1][item].max() > _SEEN * most]
            ledgers.held_bars(ax, places, {item: front[item].fillna(0).to_numpy() / scale for item in seen})
            ledgers.peak_marks(ax, places, front["peak"] / scale, size=30)
            for behind in of_precision[:-1]:
                ax.scatter(behind.reindex(sequences)["peak"] / scale, places, label="recorded peak", **_HOLLOW)
            for place, sequence in zip(places, sequences, strict=True):
                if sequence not in of_precision[-1].index and (precision, sequence) in fact(layers[-1].table, "failed"):
                    beside(ax, 0, place, fact(layers[-1].table, "failed")[precision, sequence])
            title = f"{where(layers[-1].table)}: {PRECISION_NAMES[precision]}"
            ax.set(title=title, xlabel=f"most memory in a steady step, {unit}", xlim=(0, 1.06 * most / scale))
        axes[0].set_ylabel("context")
    return close(figure, *tables, columns=4)


def timeline_chart(*runs: Sequence[pd.DataFrame]) -> Figure:
    """Memory in use by kind over the first step and a steady one: a column per run, a panel per precision.

    Takes a list of `timeline` tables per run.
    """
    runs = distinct(runs)
    figure, grid = canvas.canvas(len(runs), max(map(len, runs)), width=11.5, height=6.4, squeeze=False)
    names = {"base": "parameters", "activations": "activations and copies of weights"}
    for axes, tables in zip(grid.T, runs, strict=True):
        scale, unit = ledgers.memory_unit(max(table["allocated_mib"].max() for table in tables))
        for ax, table in zip(axes, tables, strict=True):
            memory_layers(ax, table, scale, names)
            precision = PRECISION_NAMES[fact(table, "precision")]
            ax.set(title=f"{where(table)}: {precision}, context {fact(table, 'sequence')}", ylabel=unit)
        axes[-1].set_xlabel("ms (first step, then a steady one)")
    return close(figure, *(table for run in runs for table in run), note=own_scales(figure.axes), columns=6)


def levers_chart(*tables: pd.DataFrame) -> Figure:
    """Every lever's peak, left, and time, right, as shares of the plain step's; a dot per run.

    Diamonds: the peak by formula, where there is one.
    """
    layers = [Layer(table, recorded=is_recorded(table)) for table in distinct(tables)]
    names = [name for name in LEVERS if any(name in set(table["lever"]) for table in tables)]
    figure, shown = panel_each(("peak", "time"), rows=len(names), row_height=0.36, width=11.5, sharey=True)
    for ax, what in shown:
        column = f"{what}_ratio"
        places = rows(ax, names)
        for number, layer in enumerate(layers):
            ratios = layer.table.set_index("lever")[column].reindex(names)
            aside = 0.16 * (2 * number - len(layers) + 1)
            at = [place + aside for place in places]
            spread = layer.table.set_index("lever")["spread_step_ms"].reindex(names) / _plain(layer, "step_ms")
            whisker = None if what == "peak" else 100 * spread
            ax.errorbar(100 * ratios, at, xerr=whisker, fmt="o", ms=6, capsize=2, color=layer.color, label=_name(layer))
            if what == "peak":
                formula = layer.table.set_index("lever")["formula_mib"].reindex(names) / _plain(layer, "peak_mib")
                label = None if number else "by formula"
                ax.plot(100 * formula, at, "D", ms=8, mfc="none", color=canvas.THEORY, label=label)
            style = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8, "color": canvas.QUIET}
            for place, ratio in zip(at, ratios, strict=True):
                if math.isnan(ratio) and what == "peak":
                    ax.text(0.02, place, f"{layer.label}: not measured", **style)
        ax.axvline(100, color=canvas.INK, lw=1)
        ax.set_title(f"{what.capitalize()} of a steady step")
        ax.set(xlabel=f"% of the plain step's {what}", xlim=(0, None))
    return close(figure, *tables)


def _name(layer: Layer) -> str:
    size = units.size(_plain(layer, "peak_mib") * MIB)
    return f"{layer.label}, context {fact(layer.table, 'sequence')}, plain step {size}"


def _plain(layer: Layer, column: str) -> float:
    return layer.table.set_index("lever").loc["plain", column]
