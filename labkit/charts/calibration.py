"""All predictions of a reader on one axis: how many times what was measured each guess is."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pandas as pd

from labkit.charts import canvas
from labkit.provenance import fact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE_CHARACTERS = 52  # characters of a question in one line
LINES = 2


def predictions_chart(table: pd.DataFrame) -> Figure:
    """Draw guess ÷ measurement of each prediction that has both, the newest below; 1 is a right guess."""
    shown = table.dropna(subset=["guessed_per_measured"]).reset_index(drop=True)
    figure, ax = canvas.canvas(height=1.6 + 0.42 * max(len(shown), 1))
    ax.set_title("Your predictions: guess ÷ measurement")
    if shown.empty:
        ax.text(0.5, 0.5, "No prediction has been measured yet.", ha="center", va="center", transform=ax.transAxes)
        ax.set_axis_off()
        return canvas.finish(figure, fact(table, "source"))
    largest = max(2.0, *shown["guessed_per_measured"], *(1 / shown["guessed_per_measured"])) * 1.5
    ax.set_xlim(1 / largest, largest)
    canvas.logarithmic(ax.xaxis)
    ax.axvspan(1 / 2, 2, color=canvas.HAIRLINE, label="within a factor of 2")
    ax.axvline(1, color=canvas.MEASURED, label="measured")
    ratios = shown["guessed_per_measured"]
    ax.plot(ratios, ratios.index, "D", color=canvas.PREDICTED, label="your prediction", linestyle="none")
    wrapped = [textwrap.fill(text, LINE_CHARACTERS, max_lines=LINES, placeholder=" …") for text in shown["question"]]
    ax.set_yticks(ratios.index, wrapped, fontsize=8)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlabel("how many times the measured value you guessed")
    canvas.legend_above(ax)
    return canvas.finish(figure, fact(table, "source"))
