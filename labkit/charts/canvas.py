"""One canvas for every chart: palette, typography, and a footer that names where the numbers come from."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from labkit.charts.description import keep_in_notebooks
from labkit.story import units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a GPU is doing keeps its colour in the whole workbook (Okabe and Ito's palette: told apart by colour-blind eyes).
COMPUTE, COMMUNICATE, WAIT, IDLE = "#0072B2", "#E69F00", "#CC79A7", "#D9D9D9"

# Where a number comes from keeps its colour, too.
MEASURED, RECORDED, PUBLISHED, THEORY, PREDICTED = "#0072B2", "#56B4E9", "#7F7F7F", "#222222", "#D55E00"
YOURS = "#009E73"  # what the student's own code does

# Distinct series (methods, GPUs) that are neither of the above. None is grey: to colour-blind eyes, pink and green are.
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A5A2B", "#F0E442")
MARKERS = ("o", "s", "^", "P", "v", "X", "<", "p", ">")  # of series, in the same order; a diamond is a prediction

INK, QUIET, HAIRLINE = "#222222", "#6B6B6B", "#E3E3E3"
DASHES: Any = (0, (4, 2))  # of a line beside the data: a limit, an ideal, a reference
FOOTER_POINTS = 8

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": "#B5B5B5",
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": HAIRLINE,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.dpi": 96,
    "figure.constrained_layout.w_pad": 0.09,
    "figure.constrained_layout.h_pad": 0.07,
    "savefig.dpi": 192,
}


def looks(names: Iterable[Any], colors: Sequence[str] = SERIES) -> dict[Any, dict[str, Any]]:
    """Return a colour and a marker per series: lines differ without their colours, too."""
    form = {"ms": 7, "mec": "white", "mew": 0.6}
    looks = zip(names, colors, MARKERS, strict=False)
    return {name: {"color": color, "marker": marker} | form for name, color, marker in looks}


def canvas(
    columns: int = 1, rows: int = 1, *, width: float = 9.6, height: float = 3.8, **subplots
) -> tuple[Figure, Any]:
    """Return a figure and its axes in the house style, `width` × `height` inches.

    The figure is closed for pyplot at once: returned as a cell's last value it is shown exactly once, in JupyterLab
    and in papermill alike.
    """
    import matplotlib.pyplot as plt

    _set_style()
    _sharp_in_notebooks()
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **subplots)
    plt.close(figure)
    return figure, axes


def finish(figure: Figure, source: str) -> Figure:
    """Write the footer (where the numbers come from), over several lines where it is long, and return the figure."""
    lines, most = [], int(figure.get_figwidth() * 72 / (0.57 * FOOTER_POINTS))  # a character is 0.57 of its height wide
    for part in source.split(" · "):
        joined = f"{lines[-1]} · {part}" if lines else part
        lines = [*lines[:-1], joined] if len(joined) <= most else [*lines, part]
    figure.supxlabel("\n".join(lines), x=0.995, ha="right", fontsize=FOOTER_POINTS, color=QUIET)
    return figure


def logarithmic(axis) -> None:
    """Make `axis` (`ax.xaxis`) logarithmic, with plain numbers: 0.01, 0.1; 1, 2, 5, 10 where it spans few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis._set_axes_scale("log")
    low, high = sorted(axis.get_view_interval())
    steps = (1,) if high / low > 100 else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: units.number(value, 1)))
    axis.set_minor_formatter(NullFormatter())


def legend_above(ax: Axes, columns: int = 5, **options) -> None:
    """Put the legend of `ax` over the whole figure, where it covers neither data nor a title."""
    handles, labels = ax.get_legend_handles_labels()
    _legend(ax.figure, handles, labels, columns, **options)


def shared_legend(figure: Figure, axes, columns: int = 5) -> None:
    """Name what any of the axes shows, once, over the figure."""
    named = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    _legend(figure, [*named.values()], [*named], columns)


def _legend(figure: Any, handles: list, labels: list[str], columns: int, **options) -> None:
    """Write a legend in lines of equal length, to be read line by line; matplotlib fills its columns one by one."""
    lines = -(-len(labels) // columns)
    columns = -(-len(labels) // lines) if lines else 1
    order = [entry for column in range(columns) for entry in range(column, len(labels), columns)]
    figure.legend(
        [handles[entry] for entry in order],
        [labels[entry] for entry in order],
        loc="outside upper right",
        ncols=columns,
        fontsize=9,
        **options,
    )


@functools.cache
def _set_style() -> None:
    """Set the house style, once: drawing libraries are loaded with the first figure, not with the lessons."""
    import seaborn as sns

    sns.set_theme(style="white", rc=STYLE)


def _sharp_in_notebooks() -> None:
    """Ask the notebook's backend for pixels that stay sharp on a modern screen; outside a notebook, nothing happens."""
    import matplotlib.pyplot as plt
    from IPython import get_ipython

    if get_ipython() is not None and plt.get_backend().endswith("inline"):
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina")
        keep_in_notebooks()
