"""Tables of lab 06 → figures: this run in the first panel, the recorded one in the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.charts import canvas, parts
from labkit.charts.ink import ink_on
from labkit.provenance import fact, run_name, size_name, sources
from labkit.story import units
from lessons.benchmarking.theory import FAMILIES, NAMES, PRECISION_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_PHASES = {"forward": canvas.COMPUTE, "backward": "#6FA8D0", "optimizer": canvas.SERIES[2]}
_MODES = {
    "eager": canvas.SERIES[6],
    "graph": canvas.SERIES[1],
    "compiled": canvas.SERIES[2],
    "compiled_graph": canvas.SERIES[3],
}
_HOST, _GPU, _MODEL = canvas.SERIES[2], canvas.COMPUTE, canvas.THEORY
_FAMILY_COLORS = dict(zip(FAMILIES, (*(canvas.SERIES[n] for n in (0, 3, 1, 7, 6, 2)), canvas.IDLE), strict=True))
_SPANS = {"operator": "#BFBFBF", "launch": _HOST, "kernel": _GPU}
_NAMED, _DRAWN = 0.02, 1e-3  # of the step: operators with less time have no name on the chart, or no dot
_WINDOW = (0.1, 0.18)  # of a forward: the part that is drawn, while the host still launches


def _run(table: pd.DataFrame) -> str:
    """Return whose run a panel shows, and its size."""
    return f"{run_name(table)}, {size_name(table)} size"


def _setting(model: str, precision: str) -> str:
    return f"{model}, {PRECISION_NAMES[precision]}"


def iterations_chart(*tables: pd.DataFrame) -> Figure:
    """Every iteration's ms by size, the first one on the left; a panel per run, warm-ups hollow."""
    from matplotlib.ticker import MaxNLocator

    figure, shown = parts.panel_each(parts.distinct(tables), height=4.0)
    for ax, table in shown:
        for model, look in canvas.looks(table["model"].unique()).items():
            rows = table[table["model"] == model].sort_values("iteration")
            ax.plot(rows["iteration"], rows["ms"], lw=1.2, label=model, **look)
            warm_ups = rows[rows["warm_up"].astype(bool)]
            hollow = {"ls": "", "ms": 5, "mew": 1, "mec": look["color"], "mfc": ax.get_facecolor()}
            ax.plot(warm_ups["iteration"], warm_ups["ms"], **look | hollow)
        canvas.logarithmic(ax.yaxis)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(title=_run(table), xlabel="iteration (hollow: a warm-up)", ylabel="ms per float32 forward (log)")
        ax.grid(axis="y")
    return parts.close(figure, *tables, note=parts.own_scales(shown))


def phases_chart(*tables: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Forward, backward and optimizer of an eager step, a bar per size and precision; a panel per run.

    Backward is forward + backward less forward, the optimizer the step less both; a bar ends where its step does.
    Triangles on the rows of float32: a report's forward, and its forward and backward, on an H100; on the last panel.
    """
    tables = parts.distinct(tables)
    parted = [_phases(table) for table in tables]
    figure, axes = parts.panels(len(tables), rows=max(map(len, parted)), row_height=0.3)
    for ax, table, rows in zip(axes, tables, parted, strict=True):
        parts.rows(ax, [_setting(*names) for names in rows.index], fontsize=8)
        end: Any = 0.0
        for part, color in _PHASES.items():
            end = parts.bars(ax, rows[part], start=end, color=color, label=part)
        if rows["least"].notna().any():
            look = {"marker": "|", "s": 280, "color": canvas.THEORY, "zorder": 3}
            ax.scatter(rows["least"], range(len(rows)), label="least time of its FLOP", **look)
        if ax is axes[-1]:
            _printed(ax, rows, published)
        ax.set(title=_run(table), xlabel="ms per eager step")
        ax.set_xlim(0, None)
    canvas.shared_legend(figure, axes[::-1], columns=3)
    return canvas.finish(figure, parts.own_scales(axes) + sources(*tables, published))


def _phases(table: pd.DataFrame) -> pd.DataFrame:
    eager = table[table["mode"] == "eager"]
    wide = eager.pivot_table(index=["model", "precision"], columns="phase", values="ms", aggfunc="first")
    order = list(dict.fromkeys(zip(eager["model"], eager["precision"], strict=True)))
    least = eager[eager["phase"] == "step"].set_index(["model", "precision"])["least_ms"]
    both = wide[["both", "step"]].min(axis=1)
    parted = {"forward": wide["forward"], "backward": both - wide["forward"], "optimizer": wide["step"] - both}
    return pd.DataFrame(parted | {"least": least}).reindex(order)


def _printed(ax: Any, rows: pd.DataFrame, published: pd.DataFrame) -> None:
    printed = published[(published["precision"] == "float32") & (published["gpu"] == "H100")]
    wide = printed.pivot_table(index="model", columns="phase", values="seconds", aggfunc="first")
    places = {model: place for place, (model, precision) in enumerate(rows.index) if precision == "float32"}
    look = {"marker": "v", "s": 42, "color": canvas.PUBLISHED, "edgecolor": "white", "zorder": 4, "clip_on": False}
    for both, label in ((False, "published, H100: forward, and with backward"), (True, None)):
        seconds = [wide.loc[model].sum() if both else wide.loc[model, "forward"] for model in places]
        ax.scatter([1e3 * reading for reading in seconds], [*places.values()], label=label, **look)


def modes_chart(*tables: pd.DataFrame, guess: Any = None) -> Figure:
    """The forward of the five sizes in bfloat16, a named bar per mode with its share of the peak; a panel per run."""
    forward = [table[(table["precision"] == "autocast") & (table["phase"] == "forward")] for table in tables]
    figure, shown = parts.panel_each(parts.distinct(forward), rows=max(map(len, forward)), row_height=0.26)
    for ax, rows in shown:
        first = rows["model"] != rows["model"].shift()
        parts.rows(ax, list(rows["model"].where(first, "")), fontsize=9)
        for place, row in enumerate(rows.itertuples()):
            if pd.isna(row.ms):
                parts.beside(ax, rows["ms"].min(), place, f"{NAMES[row.mode]}: {row.status}", fontsize=8)
                continue
            ax.barh(place, row.ms, color=_MODES[row.mode], xerr=row.spread_ms, ecolor=canvas.INK, height=0.8)
            of_peak = f", {units.percent(row.mfu)}" if pd.notna(row.mfu) else ""
            clear = {"boxstyle": "square,pad=0.1", "fc": ax.get_facecolor(), "ec": "none"}
            text = f"{NAMES[row.mode]}: {units.seconds(row.ms / 1e3)}{of_peak}"
            parts.beside(ax, row.ms + row.spread_ms, place, text, fontsize=8, bbox=clear)
        ax.set(title=_run(rows), xlabel="ms per forward, bfloat16")
        ax.set_xlim(0, 1.7 * (rows["ms"] + rows["spread_ms"].fillna(0)).max())
    parts.guess_line(shown[-1][0], guess)
    note = f"%: share of the GPU's peak · whisker: spread of the repeats · {parts.own_scales(shown)}"
    return parts.close(figure, *tables, note=note)


def launches_chart(*tables: pd.DataFrame) -> Figure:
    """A forward's ms by layers and by width: measured, the host's launches, the GPU's work, and the model's line.

    Without a GPU the launches are not apart from the work: only what was measured is drawn.
    """
    tables = parts.distinct(tables)
    figure, grid = canvas.canvas(2, len(tables), height=0.6 + 3.1 * len(tables), squeeze=False)
    for axes, table in zip(grid, tables, strict=True):
        for ax, (axis, column) in zip(axes, (("layers", "layers"), ("width", "hidden")), strict=True):
            rows = table[table["axis"] == axis].sort_values(column)
            x = rows[column]
            medians = {"yerr": rows["spread_ms"], "fmt": "o", "color": canvas.INK, "ms": 5}
            ax.errorbar(x, rows["eager_ms"], label="eager forward (median)", **medians)
            if rows["gpu_ms"].notna().any():
                ax.plot(x, rows["host_ms"], color=_HOST, marker=".", lw=1.2, label="kernels × time per launch")
                ax.plot(x, rows["gpu_ms"], color=_GPU, marker=".", lw=1.2, label="the GPU's work (CUDA graph)")
                dashed = {"color": _MODEL, "lw": 1.2, "ls": canvas.DASHES}
                ax.plot(x, rows["predicted_ms"], label="model: the longer of both", **dashed)
            canvas.logarithmic(ax.yaxis)
            parts.knob_axis(ax, x, axis, str, fontsize=8, rotation=45)
            ax.set(title=f"{_run(table)}: by {axis}", ylabel="ms per forward (log)")
            ax.grid(axis="y")
    return parts.close(figure, *tables, note=parts.own_scales(tables), columns=4)


def timeline_chart(*tables: pd.DataFrame) -> Figure:
    """A part of one profiled forward per panel: operators and launches of the host above, kernels below.

    Of a CPU all of it: operators are all that there is.
    """
    tables = parts.distinct(tables, "model", "precision")
    figure, grid = canvas.canvas(1, len(tables), height=0.9 + 1.4 * len(tables), squeeze=False)
    for ax, table in zip(grid[:, 0], tables, strict=True):
        lanes = ["operators", "launches", "kernels"] if (table["span"] == "kernel").any() else ["operators"]
        parts.rows(ax, lanes)
        ax.grid(False)
        ax.tick_params(axis="y", length=0)
        whole_ms = table["end_ms"].max()
        begin, end = (edge * whole_ms for edge in (_WINDOW if "kernels" in lanes else (0, 1)))
        for place, (span, color) in enumerate(list(_SPANS.items())[: len(lanes)]):
            rows = table[(table["span"] == span) & (table["end_ms"] > begin) & (table["start_ms"] < end)]
            lengths = zip(rows["start_ms"], rows["end_ms"] - rows["start_ms"], strict=True)
            ax.broken_barh(list(lengths), (place - 0.31, parts.BAR), facecolors=color, linewidth=0)
        setting = _setting(fact(table, "model"), fact(table, "precision"))
        part = f"{units.seconds((end - begin) / 1e3)} of {units.seconds(whole_ms / 1e3)}"
        ax.set_title(f"{_run(table)}: forward of {setting}, {part}")
        ax.set(xlim=(begin, end), xlabel="ms since the first operator began")
    shown = {"operator": "the host: operators", "launch": "the host launches", "kernel": "the GPU works"}
    parts.swatches(grid[0, 0], {shown[span]: color for span, color in _SPANS.items()})
    return parts.close(figure, *tables, note=parts.own_scales(tables))


def families_chart(*tables: pd.DataFrame) -> Figure:
    """Shares of all kernels' time by family, a bar per size, precision and phase; a panel per run."""
    tables = parts.distinct(tables)
    keys = ["model", "precision", "phase"]
    wides = []
    for table in tables:
        order = list(dict.fromkeys(zip(*(table[key] for key in keys), strict=True)))
        wide = table.pivot_table(index=keys, columns="family", values="share", aggfunc="first")
        wides.append(wide.reindex(order).fillna(0.0))
    figure, axes = parts.panels(len(tables), rows=max(map(len, wides)), row_height=0.3)
    for ax, table, wide in zip(axes, tables, wides, strict=True):
        names = [f"{_setting(model, precision)}, {NAMES[phase]}" for model, precision, phase in wide.index]
        parts.rows(ax, names, fontsize=8)
        end: Any = 0.0
        for family in (family for family in FAMILIES if family in wide):
            end = parts.bars(ax, 100 * wide[family], start=end, color=_FAMILY_COLORS[family], label=family)
        for place, share in enumerate(wide.get("matmul", ())):
            ax.text(1, place, units.percent(share), va="center", fontsize=8, color=ink_on(_FAMILY_COLORS["matmul"]))
        ax.set(title=_run(table), xlabel="% of the time of all kernels", xlim=(0, 100))
        ax.grid(False)
    canvas.shared_legend(figure, axes[::-1], columns=7)
    return canvas.finish(figure, sources(*tables))


def roofline_chart(*tables: pd.DataFrame) -> Figure:
    """Each operator's TFLOP/s by its FLOP per byte, under both roofs where they are known; a panel per run.

    A dot's area shows its share of the time. Operators with less than 0.1 % of the time are left out, and so is a run
    without roofs beside one that has them.
    """
    tables = parts.distinct(tables)
    tables = tuple(table for table in tables if fact(table, "gb_per_s") == fact(table, "gb_per_s")) or tables
    figure, shown = parts.panel_each([table[table["share"] >= _DRAWN] for table in tables], height=4.6)
    for ax, table in shown:
        peak, rate = fact(table, "peak_tflops"), fact(table, "gb_per_s")
        look = {"s": _area(table), "color": canvas.MEASURED, "alpha": 0.55, "linewidth": 0}
        ax.scatter(table["flop_per_byte"], table["tflops"], **look)
        low, high, top = table["flop_per_byte"].min() / 4, 6 * table["flop_per_byte"].max(), table["tflops"].max()
        if rate == rate:
            high, top = max(high, 3e3 * peak / rate), max(top, peak)
            x = np.geomspace(low, high, 200)
            ax.plot(x, np.minimum(x * rate / 1e3, peak), color=canvas.THEORY, lw=1.4)
        ax.set(xlim=(low, high), ylim=(table["tflops"].min() / 4, 8 * top))
        for scale in (ax.xaxis, ax.yaxis):
            canvas.logarithmic(scale)
        roofs = f"{units.rate(rate)}, {units.number(peak)} TFLOP/s" if rate == rate else "no roof is known"
        setting = _setting(fact(table, "model"), fact(table, "precision"))
        ax.set(title=f"{_run(table)}\n{setting}: {roofs}", xlabel="FLOP per byte (log)", ylabel="TFLOP/s (log)")
        ax.grid(axis="both")
    note = f"a dot's area: its share of the kernels' time · {parts.own_scales(shown)}"
    canvas.finish(figure, note + sources(*tables))
    for ax, table in shown:
        _names(ax, table)
    return figure


_GAPS = (7, 14, 22, 32, 44, 58)  # points between a name and its dot
_APART = 6  # points, at least, between a name and the dots of others: nearer it would seem to be theirs
_CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # a line may pass below a name


def _names(ax: Any, rows: pd.DataFrame) -> None:
    """Write the names of the operators beside their dots, with a line to each, the largest share of the time first.

    Each stands at the first place around its dot where nothing else does; where there is none, it is left out.
    """
    from matplotlib.transforms import Bbox

    ax.figure.draw_without_rendering()  # lays the figure out: what comes later would move the dots
    point, frame = ax.figure.dpi / 72, ax.get_window_extent()
    spots = ax.transData.transform(rows[["flop_per_byte", "tflops"]])
    radii = np.sqrt(_area(rows).to_numpy()) * point / 2
    dots = [Bbox([spot - radius, spot + radius]) for spot, radius in zip(spots, radii, strict=True)]
    taken: list[Bbox] = []
    shares = rows["share"].reset_index(drop=True)
    for number in shares[shares >= _NAMED].sort_values(ascending=False).index:
        name = rows["operator"].iloc[number].removeprefix("aten::").strip("_")[:26]
        dot = rows["flop_per_byte"].iloc[number], rows["tflops"].iloc[number]
        look = {"textcoords": "offset points", "ha": "center", "va": "center", "bbox": _CLEAR, "fontsize": 7.5}
        label = ax.annotate(name, dot, (0, 0), zorder=5, **look)
        size = label.get_window_extent()
        others = [*taken, *(other.padded(_APART * point) for place, other in enumerate(dots) if place != number)]
        for place in _around(dots[number], size.width, size.height, point):
            inside = frame.x0 <= place.x0 and place.x1 <= frame.x1 and frame.y0 <= place.y0 and place.y1 <= frame.y1
            if inside and not any(place.padded(point).overlaps(other) for other in others):
                taken.append(place)
                offset = (np.mean(place.get_points(), axis=0) - spots[number]) / point
                label.set_position(offset)
                line = {"arrowstyle": "-", "lw": 0.7, "color": canvas.QUIET, "shrinkA": 0, "shrinkB": 0}
                ax.annotate("", dot, offset, textcoords="offset points", arrowprops=line, zorder=4)
                break
        else:
            label.remove()


def _around(dot: Bbox, width: float, height: float, point: float) -> Iterator[Bbox]:
    """Yield places for a name around a dot, in pixels: beside it, above and below, at its corners; nearest first."""
    from matplotlib.transforms import Bbox

    x, y = (dot.x0 + dot.x1) / 2, (dot.y0 + dot.y1) / 2
    for gap in (point * gap for gap in _GAPS):
        across, up = (dot.width + width) / 2 + gap, (dot.height + height) / 2 + gap
        for dx, dy in ((across, 0), (-across, 0), (0, up), (0, -up), (across, up), (across, -up), (-across, up)):
            yield Bbox.from_bounds(x + dx - width / 2, y + dy - height / 2, width, height)


def _area(rows: pd.DataFrame) -> pd.Series:
    """Return the dots' areas in square points."""
    return 20 + 900 * rows["share"]
