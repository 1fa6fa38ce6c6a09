"""What was learnt, and what a report printed, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.charts import canvas, parts
from labkit.provenance import sources, where
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {
    "reference": "reference",
    "one_gpu": "large batch, one GPU",
    "large": "large batch, all GPUs",
    "no_warm_up": "… without warm-up",
    "unscaled": "… learning rate not scaled",
    "same_order": "… without set_epoch",
    "sync_bn": "… with SyncBatchNorm",
}


def accuracy_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """Accuracy on the test images after the last epoch, mean and standard deviation over seeds; a panel per run.

    Beside each: steps in all. Hollow: accuracy on the training images, as they were trained. `guess` is in percent.
    """
    figure, axes = parts.panels(len(tables), rows=max(map(len, tables)), row_height=0.5)
    for ax, table in zip(axes, tables, strict=True):
        labels = [
            f"{_NAMES[row.variant]}\n{row.ranks} × {row.gpu_batch}, {row.steps} steps" for row in table.itertuples()
        ]
        places = parts.rows(ax, labels, fontsize=8.5)
        for name, label, fill, aside in (
            ("test_percent", "test images", canvas.MEASURED, -0.12),
            ("train_percent", "training images", "white", 0.14),
        ):
            at = [place + aside for place in places]
            look = {"color": canvas.MEASURED, "mfc": fill, "marker": "o", "ls": "", "capsize": 3, "label": label}
            spread = table[f"std_{name}"].fillna(0.0)
            whiskers = [spread.clip(upper=table[name]), spread.clip(upper=100 - table[name])]  # no answers beyond all
            ax.errorbar(table[name], at, xerr=whiskers, **look)
        ax.axvline(10, color=canvas.QUIET, lw=1, ls=(0, (2, 2)), label="guessing")
        if ax is axes[-1]:
            parts.guess_line(ax, guess)
        ax.set(title=where(table), xlabel="right answers, %", xlim=(0, 104))
        ax.set_xticks(range(0, 101, 20))
    canvas.shared_legend(figure, axes)
    return canvas.finish(figure, f"whiskers: standard deviation over seeds, up to 100 % · {sources(*tables)}")


def published_chart(table: pd.DataFrame) -> Figure:
    """A report's speed-ups per setting: as printed, and what its own seconds mean over one GPU.

    Takes `published_speedups`.
    """
    figure, (ax,) = parts.panels(1, rows=len(table), row_height=0.34)
    places = parts.rows(ax, [f"{row.gpus} × {row.batch_per_gpu}" for row in table.itertuples()])
    ax.hlines(places, table["speedup_as_printed"], table["true_speedup"], color=canvas.HAIRLINE, lw=2)
    marks = {
        "speedup_as_printed": ("printed", "^", canvas.PUBLISHED),
        "true_speedup": ("its own seconds", "o", canvas.INK),
    }
    for column, (label, marker, color) in marks.items():
        ax.plot(table[column], places, marker, color=color, ms=7, label=label)
    ends = table[["speedup_as_printed", "true_speedup"]].max(axis=1)
    for place, end, row in zip(places, ends, table.itertuples(), strict=True):
        parts.beside(ax, end, place, units.seconds(row.epoch_seconds), fontsize=8)
    ax.set(title="GPUs × images per GPU: the report's speed-ups", xlabel="times one GPU", xlim=(0.8, 2.2))
    canvas.legend_above(ax)
    return canvas.finish(figure, sources(table))
