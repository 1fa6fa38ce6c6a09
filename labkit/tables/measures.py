"""A lesson's measures: each figure that matters is declared once, for the card, the scorecard and comparisons.

A lesson's `measures.csv` holds them, a row a measure. It also says how a run shows each: `figure` names what is taken
(TAKEN) of a column of one of the lesson's tables, where its rows have the `knobs`; without a table it names a function
in the lesson's `measures.py`, which takes the run and the knobs. There `card_plans()` says what `make card` launches.
"""

from __future__ import annotations

import csv
import importlib
import json
import math
import pkgutil
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.repository import LESSONS
from labkit.tables.rates import PEAK

if TYPE_CHECKING:
    from labkit.engine.run import Run

HIGHER, LOWER = "higher", "lower"
_NEEDS = re.compile(r"(?:(exactly )?(\d+) GPUs?|(2 nodes)|)(?:, )?(no middle size)?")
CODE, GPU, HOST = "code", "gpu", "host"  # what a measure depends on


@dataclass(frozen=True)
class Part:
    """What one GPU, or one pair of GPUs, showed of a figure: the median of its repeats and their quartiles.

    name: "GPU 1", "GPU 0 → GPU 1", by the numbers of nvidia-smi; uuids: of those GPUs, as far as they are known. path:
    the link of a pair, as "NV18" or "SYS": pairs of unlike paths differ by design.
    """

    name: str
    value: float
    low: float
    high: float
    uuids: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True)
class Measured:
    """A figure as one run shows it: the median of its repeats, their quartiles `low` and `high`, and their number.

    `setting` says what the figure depends on besides the GPU model, as "1 GiB, 4 GPUs": figures of different settings
    are not compared. `limit` is what physics allows, in the figure's unit; NaN where no datasheet is known. `parts`:
    the same of each GPU, or pair, where the figure is that of the slowest one.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    repeats: int = 0
    setting: str = ""
    limit: float = math.nan
    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float], setting: str, limit: float | None = None) -> Measured | None:
        """Return the figure of these repeats; None where there are none."""
        numbers = [float(value) for value in values if not math.isnan(value)]
        if not numbers:
            return None
        low, value, high = statistics.quantiles(numbers, n=4, method="inclusive") if len(numbers) > 1 else numbers * 3
        return cls(value, low, high, len(numbers), setting, math.nan if limit is None else float(limit))

    def rate(self, amount: float, limit: float | None = None) -> Measured:
        """Return what is done per unit of time, where this figure is the time that `amount` takes."""
        value, low, high = (amount / time if time else math.inf for time in (self.value, self.high, self.low))
        return replace(self, value=value, low=low, high=high, limit=math.nan if limit is None else float(limit))


Shown = Callable[["Run"], Measured | None]  # how a run shows a figure; None where it does not


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One figure of a lesson: how a run shows it, what is to be reached, and what it depends on.

    plan: the lower-case name of the plan whose runs show it. measured: the figure as a run shows it, in `unit`, with
    its physical limit where there is one; None where the run does not show it. comparison and goal: such as "≤" and
    1.05; a measure without them is shown by a node's card, where `better` is HIGHER or LOWER. least_gpus: 0 for a
    figure that CPU processes show, too. gpus: it is one of runs on exactly so many GPUs; 0: on any number.
    between_nodes: one of runs on several nodes, GPUs or not. no_middle: the goal is of the full size, not of a middle
    one. depends_on: CODE (counted bytes, errors), which any machine shows; GPU, also its links; HOST, as a step whose
    kernels the host enqueues. reason: why the goal is missed where it is, as far as that is known.
    """

    name: str
    unit: str
    plan: str
    measured: Shown
    better: str = HIGHER
    comparison: str = ""
    goal: float = math.nan
    depends_on: str = GPU
    least_gpus: int = 0
    gpus: int = 0
    between_nodes: bool = False
    no_middle: bool = False
    reason: str = ""

    @property
    def on_card(self) -> bool:
        """Whether a node's card shows it, beside recorded runs: what has a goal is in the scorecard."""
        return not self.comparison

    @property
    def by_host(self) -> bool:
        """Whether the host's speed changes it: its cores, its memory, the time to enqueue a kernel."""
        return self.depends_on == HOST

    def of(self, run: Run) -> Measured | None:
        """Return the figure of a run of its plan; None where the run does not show it, or stood in for GPUs on CPUs."""
        stands_in = self.least_gpus and run.plan.device == "cpu"
        other_size = self.no_middle and run.plan.size == "middle"
        return None if stands_in or other_size or self.gpus not in (0, run.plan.gpus) else self.measured(run)


def ratio(dividend: Measured | None, divisor: Measured | None) -> Measured | None:
    """Return the quotient of two figures; its quartiles are as far from it as theirs together, in relation to them.

    None where one of the two was not measured.
    """
    if dividend is None or divisor is None:
        return None
    value = dividend.value / divisor.value
    reach = value * sum((term.high - term.low) / (2 * term.value) for term in (dividend, divisor))
    repeats = min(dividend.repeats, divisor.repeats)
    return replace(dividend, value=value, low=value - reach, high=value + reach, repeats=repeats, limit=math.nan)


def of_each(
    run: Run,
    rows: pd.DataFrame,
    column: str,
    by: list[str],
    setting: str,
    limit: float | None = None,
    which: str = "min",
) -> Measured | None:
    """Return the figure of the GPU, or pair, whose median is the lowest (or the highest, "max"), and those of all.

    by: the columns that hold the rank of the GPU, or of the two of a pair. None where there are no rows.
    """
    shown = {}
    for ranks, values in rows.groupby(by)[column]:
        if (measured := Measured.of(values, setting, limit)) is not None:
            shown[_part(run, [int(rank) for rank in ranks], measured)] = measured
    if not shown:
        return None
    slowest = (min if which == "min" else max)(shown, key=lambda part: part.value)
    return replace(shown[slowest], parts=tuple(shown))


def _part(run: Run, ranks: list[int], measured: Measured) -> Part:
    gpus = [run.node.gpus[rank] for rank in ranks] if run.plan.device == "cuda" and run.node_count == 1 else []
    names = [f"GPU {gpu.index}" for gpu in gpus] or [f"process {rank}" for rank in ranks]
    path = run.node.path_between(*gpus) if len(set(gpus)) == 2 else ""
    uuids = tuple(gpu.uuid for gpu in dict.fromkeys(gpus) if gpu.uuid)
    return Part(" → ".join(dict.fromkeys(names)), measured.value, measured.low, measured.high, uuids, path)


def figure(run: Run, value: float, spread: float = 0.0) -> Measured:
    """Return a figure that a run's table gives with its half-width, which NaN, of a single repeat, is not."""
    reach = 0.0 if math.isnan(spread) else float(spread)
    return Measured(float(value), value - reach, value + reach, 1, workers(run))


TAKEN: dict[str, Callable[[pd.Series], float]] = {
    "first": lambda values: values.iloc[0],
    "last": lambda values: values.iloc[-1],
    "largest": lambda values: values.max(),
    "smallest": lambda values: values.min(),
    "farthest": lambda values: values.abs().max(),  # from 0, its sign left out
}
SCALES = {"%": 100.0, "thousandths": 1e3, "millionths": 1e6}  # units of figures whose columns hold shares


def figure_of(
    run: Run, table: pd.DataFrame, column: str, scale: float = 1.0, take: str = "first", **knobs: Any
) -> Measured | None:
    """Return what is taken (TAKEN) of a column, or of several, of the rows with these knobs; None without a value.

    The first value comes with its spread.
    """
    rows = table[(table[[*knobs]] == pd.Series(knobs)).all(axis=1)] if knobs else table
    rows = rows.dropna(subset=column.split(), how="all")
    if rows.empty:
        return None
    values = pd.Series(rows[column.split()].to_numpy().ravel()).dropna()
    spread = rows.iloc[0].get(f"spread_{column}", 0.0) if take == "first" else 0.0
    return figure(run, scale * TAKEN[take](values), scale * spread)


@cache
def measures_of(lab: str) -> tuple[Measure, ...]:
    """Return the measures of the lesson of this name, such as "broadcast"; none where it declares none."""
    file = LESSONS / lab / "measures.csv"
    if not file.exists():
        return ()
    with file.open(encoding="utf-8", newline="") as lines:
        return tuple(_declared(row, _shown(lab, row)) for row in csv.DictReader(lines))


def _shown(lab: str, row: dict[str, str]) -> Shown:
    """Return how a run shows the measure of a row, of which figure, table, column and knobs are taken away.

    Knobs are as "head_dim=64; precision=float32". A unit of SCALES says that the column holds shares.
    """
    figure_name, table, column, knobs_text = (row.pop(name) for name in ("figure", "table", "column", "knobs"))
    knobs = {name: _value(text) for name, _, text in (each.partition("=") for each in knobs_text.split("; ")) if name}
    if not table:
        return partial(getattr(importlib.import_module(f"lessons.{lab}.measures"), figure_name), **knobs)
    read, scale = pkgutil.resolve_name(f"lessons.{lab}.tables.{table}"), SCALES.get(row["unit"], 1.0)
    return lambda run: figure_of(run, read(run), column, scale, figure_name, **knobs)


def _value(text: str) -> Any:
    """Return the number or truth value that a knob's text says, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _declared(row: dict[str, str], measured: Shown) -> Measure:
    """Return the measure of a row: `goal` is as "≤ 1.05", `needs` as "1 GPU", "exactly 4 GPUs" or "2 nodes".

    It also needs "no middle size", after a comma, where a middle size has no goal.
    """
    comparison, _, goal = row.pop("goal").rpartition(" ")
    if (needs := _NEEDS.fullmatch(row.pop("needs"))) is None:
        raise ValueError(f"{row['name']}: it needs nothing, or as 1 GPU, exactly 4 GPUs, 2 nodes, no middle size")
    exactly, gpus, nodes, no_middle = needs.groups()
    return Measure(
        **row,
        measured=measured,
        comparison=comparison,
        goal=float(goal or math.nan),
        least_gpus=int(gpus or 0),
        gpus=int(gpus) if exactly else 0,
        between_nodes=nodes is not None,
        no_middle=no_middle is not None,
    )


def repeats(run: Run, column: str, **knobs: Any) -> pd.Series:
    """Return one value per repeat of the points with these knobs: that of the slowest rank, without warm-ups.

    Empty where the run has no such point, and where it failed.
    """
    rows = run.rows
    if not {column, *knobs} <= {*rows.columns}:
        return rows.iloc[:0].reindex(columns=[column])[column]
    chosen = (rows["status"] == "ok") & ~rows["warm_up"].astype(bool) & rows[column].notna()
    for knob, value in knobs.items():
        chosen &= rows[knob] == value
    return rows[chosen].groupby(["point", "iteration"])[column].max()


def workers(run: Run) -> str:
    """Return "4 GPUs", "1 GPU", or "2 CPU processes": what a figure's setting says of the workers."""
    return run.plan.workers_text


def on_one(run: Run, text: str) -> str:
    """Return the setting of a figure that does not depend on the number of GPUs; it says where none took part."""
    return text if run.plan.device == "cuda" else f"{text}, CPU processes"


def most_per_second(run: Run, flop: float, precision: str, gpus: int = 1) -> float | None:
    """Return how many things of `flop` operations each these GPUs can do per second, by their datasheet."""
    tflops = run.datasheet.tflops(PEAK[precision]) if run.datasheet else None
    return gpus * tflops * 1e12 / flop if tflops else None
