"""Rows of timed phases and first iterations → medians beside least times, warm-ups by their number, events by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node import limits
from labkit.provenance import of_run
from labkit.tables.rates import PEAK
from labkit.tables.rows import entries
from labkit.theory.transformer import NAMES, forward_flop
from lessons.benchmarking.plan import MODES, PHASES, PRECISIONS
from lessons.benchmarking.theory import FORWARDS, KINDS

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["model", "precision", "mode", "phase"]
WARM_UPS = (0, 1, 2, 5)
_ORDER = {"model": NAMES, "precision": PRECISIONS, "mode": MODES, "phase": PHASES}


def steps(run: Run) -> pd.DataFrame:
    """Return one row per SETTING: its median, what the host took to launch it, and how far it is from the least time.

    Columns: layers, ms, spread_ms, count, status, enqueue_ms, ms_per_layer; flop (of one forward: 1, with backward: 3),
    tflops, peak_tflops (the units' dense rate), mfu and verdict; least_ms, the time of these FLOP at that rate.
    """
    table = run.medians(SETTING, "ms").dropna(subset="phase")
    launched = _timed(run).groupby(SETTING, sort=False)["enqueue_ms"].median().reset_index()
    table = table.merge(launched, on=SETTING, how="left")
    table["layers"] = [run.plan.dimensions(model)[2] for model in table["model"]]
    table["ms_per_layer"] = table["ms"] / table["layers"]
    forwards = {model: _flop(run.plan, model) for model in dict.fromkeys(table["model"])}
    table["flop"] = table["model"].map(forwards) * table["phase"].map(FORWARDS)
    table["tflops"] = table["flop"] / table["ms"] / 1e9
    known = _spec(run)
    peaks = [known.tflops(PEAK[precision]) if known else None for precision in table["precision"]]
    table["peak_tflops"] = pd.Series(peaks, table.index, dtype=float)
    table["least_ms"] = table["flop"] / table["peak_tflops"] / 1e9
    table = limits.against_limit(table, "tflops", "peak_tflops").rename(columns={"share_of_limit": "mfu"})
    return of_run(_sorted(table.drop(columns="limit")), run)


def _timed(run: Run) -> pd.DataFrame:
    rows = entries(run, "phase")
    return rows[~rows["warm_up"].astype(bool)]


def _spec(run: Run) -> limits.Spec | None:
    return limits.spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None


def _flop(plan: Any, model: str) -> int:
    return forward_flop(plan.shape(model), plan.dimensions(model)[0], plan.sequence, plan.samples)


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows by size, precision, mode and phase."""
    by = [name for name in _ORDER if name in table]
    return table.sort_values(by, key=lambda column: column.map(_ORDER[column.name].index), ignore_index=True)


def modes(run: Run, precision: str = "autocast") -> pd.DataFrame:
    """Return one row per model and phase: ms of every mode, and what launches and fusion make of eager's time.

    Columns: eager_ms, graph_ms, compiled_ms, compiled_graph_ms (NaN where not measured); `launches`: eager over graph,
    the same kernels without their launches; `fusion`: graph over compiled_graph, other kernels without launches;
    `compiling`: eager over compiled. Their spreads stand in `spread_<mode>_ms`.
    """
    table = steps(run)
    table = table[table["precision"] == precision]
    index = ["model", "phase"]
    form = {"index": index, "columns": "mode", "aggfunc": "first"}
    wide = table.pivot_table(values="ms", **form).reindex(columns=list(MODES)).add_suffix("_ms")
    noise = table.pivot_table(values="spread_ms", **form).reindex(columns=list(MODES))
    wide = wide.join(noise.add_prefix("spread_").add_suffix("_ms"))
    wide["launches"] = wide["eager_ms"] / wide["graph_ms"]
    wide["fusion"] = wide["graph_ms"] / wide["compiled_graph_ms"]
    wide["compiling"] = wide["eager_ms"] / wide["compiled_ms"]
    return of_run(_sorted(wide.reset_index()), run)


def iterations(run: Run, *, precision: str = "float32", mode: str = "eager", phase: str = "forward") -> pd.DataFrame:
    """Return every iteration of the five sizes, warm-ups included, in the order of measuring: iteration, ms, sm_mhz.

    `times_later`: an iteration over the median of those after all warm-ups. Of several seeds the first.
    """
    rows = entries(run, "phase").reindex(columns=[*SETTING, "seed", "iteration", "warm_up", "ms", "sm_mhz"])
    rows = rows[(rows["precision"] == precision) & (rows["mode"] == mode) & (rows["phase"] == phase)]
    rows = rows[rows["seed"] == rows["seed"].min()].drop(columns=["seed", "precision", "mode", "phase"])
    later = rows[~rows["warm_up"].astype(bool)].groupby("model")["ms"].median()
    rows["times_later"] = rows["ms"] / rows["model"].map(later)
    return of_run(rows.reset_index(drop=True), run, phase=phase, precision=precision)


def warm_ups(run: Run, *, model: str = "small", precision: str = "float32") -> pd.DataFrame:
    """Return one row per phase and number of warm-ups dropped: mean, standard deviation, median, spread and count.

    All use the same iterations but those dropped, so that only the dropping differs.
    """
    found = []
    for phase in PHASES:
        table = iterations(run, precision=precision, phase=phase)
        all_ms = table[table["model"] == model].sort_values("iteration")["ms"]
        for dropped in WARM_UPS:
            ms = all_ms.iloc[dropped:]
            quartiles = ms.quantile([0.25, 0.75])
            half = (quartiles.iloc[1] - quartiles.iloc[0]) / 2
            found.append((phase, dropped, ms.mean(), ms.std(), ms.median(), half, len(ms)))
    columns = ["phase", "warm_ups", "mean_ms", "std_ms", "median_ms", "spread_ms", "count"]
    return of_run(pd.DataFrame(found, columns=columns), run, model=model, precision=precision)


def first_calls(run: Run) -> pd.DataFrame:
    """Return one row per event of the host, most that only the first iteration has above: event, kind, and its times.

    Columns: calls_first, longest_ms (of one call) and first_ms, of iteration 0; second_ms; later_ms, the median of all
    after; extra_ms, first less later.
    """
    rows = entries(run, "event").reindex(columns=["event", "kind", "iteration", "calls", "longest_us", "self_us"])
    keys = ["event", "kind"]
    wide = rows.pivot_table(index=keys, columns="iteration", values="self_us", aggfunc="sum").fillna(0.0) / 1e3
    later = [number for number in wide if number > 1]
    table = pd.DataFrame({"first_ms": wide[0], "second_ms": wide[1], "later_ms": wide[later].median(axis=1)})
    first = rows[rows["iteration"] == 0].groupby(keys)
    table.insert(0, "calls_first", first["calls"].sum())
    table.insert(1, "longest_ms", first["longest_us"].max() / 1e3)
    table["extra_ms"] = table["first_ms"] - table["later_ms"]
    table = table.fillna({"calls_first": 0}).astype({"calls_first": int}).reset_index()
    return of_run(table.sort_values("extra_ms", ascending=False, ignore_index=True), run)


def first_kinds(run: Run) -> pd.DataFrame:
    """Return one row per iteration and kind of event: its ms."""
    rows = entries(run, "event")
    table = rows.groupby(["iteration", "kind"])["self_us"].sum().div(1e3).rename("ms").reset_index()
    table = table.sort_values(["iteration", "kind"], key=lambda c: c.map(KINDS.index) if c.name == "kind" else c)
    return of_run(table.reset_index(drop=True), run)


def first_iterations(run: Run) -> pd.DataFrame:
    """Return one row per profiled iteration: ms, gpu_ms, device_allocations (requests to the driver) and sm_mhz."""
    columns = ["iteration", "ms", "gpu_ms", "device_allocations", "sm_mhz"]
    return of_run(entries(run, "iteration").reindex(columns=columns).reset_index(drop=True), run)
