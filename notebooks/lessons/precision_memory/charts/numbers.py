"""How floats are spaced, what sums lose, where gradients lie, and what LayerNorm's statistics need."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import sources, where
from lessons.precision_memory.theory.floats import FORMATS, VALUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMAT_COLORS = dict(zip(FORMATS, (canvas.SERIES[n] for n in (0, 4, 3, 2, 1, 7)), strict=True))
_WAYS = {  # colour and dash of a way to sum
    "float16 + float16": (FORMAT_COLORS["float16"], "-"),
    "float16, Kahan": (FORMAT_COLORS["float16"], (0, (4, 2))),
    "float16, blocks of 32": (FORMAT_COLORS["float16"], ":"),
    "bfloat16 + bfloat16": (FORMAT_COLORS["bfloat16"], "-"),
    "bfloat16, Kahan": (FORMAT_COLORS["bfloat16"], (0, (4, 2))),
    "bfloat16, blocks of 32": (FORMAT_COLORS["bfloat16"], ":"),
    "float32 + float16": (FORMAT_COLORS["float32"], "-"),
}
_EVERY = 10  # terms between two points of an error: sums that go to and fro would hide each other
_LEAST_SHARE = 1e-4  # of the gradients: rarer sizes are not drawn


def spacing_chart(table: pd.DataFrame) -> Figure:
    """The distance between neighbouring numbers by their size, a line per format; half of 0.01 is marked."""
    figure, ax = canvas.canvas(height=4.2)
    for name, own in table.groupby("format", sort=False):
        ax.plot(own["value"], own["spacing"], color=FORMAT_COLORS[str(name)], lw=2, drawstyle="steps-post", label=name)
    ax.axhline(2 * VALUE, color=canvas.INK, ls=(0, (3, 2)), lw=1)
    parts.beside(ax, table["value"].min(), 2 * VALUE, "spacing 0.02: adding 0.01 changes nothing above", va="bottom")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    title = "Spacing of floats: a few digits, at any size"
    ax.set(title=title, xlabel="number", ylabel="distance to the next number")
    ax.grid(axis="both")
    canvas.legend_above(ax, columns=6)
    return canvas.finish(figure, sources(table))


def sums_chart(table: pd.DataFrame, guess: Any = None) -> Figure:
    """The running sum of 0.01 by step, left; right its error, of the sums that stay near. `guess`: a final sum."""
    figure, (left, right) = canvas.canvas(2, height=4.2)
    for way, (color, dash) in _WAYS.items():
        own = table[table["way"] == way]
        style = {"color": color, "ls": dash, "lw": 1.8}
        left.plot(own["step"], own["total"], label=way, **style)
        if abs(own["error"].iloc[-1]) < 1:
            right.plot(own["step"][::_EVERY], own["error"][::_EVERY], **style)
    value = getattr(guess, "value", guess)
    if value is not None:
        left.axhline(value, color=canvas.PREDICTED, ls=(0, (3, 2)), lw=1.6, label="your prediction")
    left.set(title="0.01, a thousand times", xlabel="terms added", ylabel="sum")
    right.set(title="Error of the sum", xlabel="terms added", ylabel="sum − 0.01 × terms")
    for ax in (left, right):
        ax.grid(axis="y")
    canvas.legend_above(left, columns=3)
    return canvas.finish(figure, sources(table))


def norms_chart(table: pd.DataFrame) -> Figure:
    """The relative error of a LayerNorm by the format of its statistics: by deviation, left, and by mean, right."""
    figure, axes = canvas.canvas(2, height=3.9, sharey=True)
    names = {
        "deviation": "standard deviation of the input, mean 0",
        "mean": "mean of the input, standard deviation 1",
    }
    for ax, (varied, label) in zip(axes, names.items(), strict=True):
        for precision, own in table[table["varied"] == varied].groupby("precision", sort=False):
            color = FORMAT_COLORS[str(precision)]
            fine = own[own["error"].notna()]
            ax.plot(fine["input_size"], fine["error"], "o-", ms=4, color=color, label=f"statistics in {precision}")
            broken = own[own["error"].isna()]
            ax.plot(broken["input_size"], [1.5] * len(broken), "x", ms=7, color=color)
        ax.set_yscale("log")
        if varied == "deviation":
            ax.set_xscale("log", base=2)
        else:
            ax.set_xscale("symlog", base=4, linthresh=1)
        ax.set(title=f"{where(table)}: by {varied}", xlabel=label)
        ax.grid(axis="y")
    axes[0].set_ylabel("relative error (× : no finite result)")
    canvas.legend_above(axes[0], columns=3)
    return canvas.finish(figure, sources(table))


def scaling_chart(histogram: pd.DataFrame, course: pd.DataFrame) -> Figure:
    """Left the gradients by their power of two, with what float16 can hold; right GradScaler's scale, step by step."""
    figure, (left, right) = canvas.canvas(2, height=4.2, width_ratios=(3, 2))
    half = FORMATS["float16"]
    least, normal, most = (math.log2(one) for one in (half.least, half.least_normal, half.largest))
    left.axvspan(normal, most, color="#E7F2EC", lw=0, label="float16, all digits")
    left.axvspan(least - 1, normal, color="#F4F4E4", lw=0, label="float16, fewer digits")
    for of, color in (("activations", canvas.SERIES[4]), ("weights", canvas.SERIES[0])):
        own = histogram[histogram["of"] == of]
        left.plot(
            own["exponent"], 100 * own["share"], color=color, lw=2, drawstyle="steps-mid", label=f"gradients of {of}"
        )
    left.set(
        title=f"{where(histogram)}: gradients", xlabel="size of the gradient, power of two", ylabel="% of the gradients"
    )
    seen = histogram[histogram["share"] > _LEAST_SHARE]
    left.set_xlim(min(seen["exponent"].min(), least - 2), most + 1)
    left.set_ylim(0, None)
    scaled = course[course["way"] == "float16 scaled"]
    _scale(right, scaled)
    canvas.legend_above(left, columns=4)
    return canvas.finish(figure, sources(histogram, course))


def _scale(ax: Axes, course: pd.DataFrame) -> None:
    ax.plot(course["step"], course["scale"], color=canvas.INK, lw=1.6, drawstyle="steps-post")
    skipped = course[course["skipped"]]
    ax.plot(
        skipped["step"], skipped["scale"], "x", color=FORMAT_COLORS["float16"], ms=7, label="overflow: step skipped"
    )
    ax.set_yscale("log", base=2)
    ax.set(title="GradScaler", xlabel="step", ylabel="loss scale")
    ax.grid(axis="y")
    if len(skipped):
        ax.legend(fontsize=8, loc="lower right")
