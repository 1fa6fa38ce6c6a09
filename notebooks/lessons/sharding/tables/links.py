"""Rows of timed collectives → bus bandwidth, lines fitted to it, and training steps projected from these lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from labkit.provenance import like, of_run
from labkit.tables.lines import fits as fits
from labkit.tables.lines import links as links
from labkit.theory.lines import Link
from lessons.sharding.theory import project

if TYPE_CHECKING:
    from labkit.engine.run import Run

_STEP = ["strategy", "ranks", "micro_batch", "micro_batches", "load", "precision", "vocabulary"]
_SHARED = ["micro_batch", "precision", "vocabulary"]  # what the projected steps share with the single GPU's


class _Row(NamedTuple):
    """A projected step: efficiency is over the single GPU's speed, error is predicted over measured, less 1."""

    strategy: str
    gpus: int
    tokens_per_s: float
    efficiency: float
    measured_tokens_per_s: float
    error: float
    exposed_ms: float
    communication_ms: float
    latency_ms: float
    efficiency_at_fixed_alpha: float


def projection(
    links_run: Run,
    strategies_run: Run,
    *,
    micro_batch: int | None = None,
    load: str = "large",
    gpus: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    per_node: int = 8,
    network_gb_per_s: float = 50.0,
) -> pd.DataFrame:
    """Return one row per strategy and number of GPUs: its speed by `project`, beside the measured one.

    Columns are those of _Row; what was not measured is NaN. How α grows with a ring is the projection's boldest guess:
    in efficiency_at_fixed_alpha α stays as it was.

    Every GPU takes one micro-batch, that of the single GPU's step at `load` (and `micro_batch`, where given), which
    gives the compute. Lines are those fitted at as many ranks, or at the most that were timed. 50 GB/s per GPU is the
    one 400 Gbit/s InfiniBand card that each GPU of a DGX H100 has. Facts: per_node, network_gb_per_s, micro_batch.
    Raises ValueError where no single GPU took such a step, or no line could be fitted.
    """
    steps = _steps(strategies_run, load, micro_batch)
    base = steps[steps["strategy"] == "single"].iloc[0]
    lines = fits(links_run)
    if lines.empty:
        raise ValueError("no collective was timed at two sizes")
    plan: Any = strategies_run.plan
    vocabulary = int(base["vocabulary"])
    compute_s, tokens = base["step_ms"] / 1e3, int(base["micro_batch"]) * plan.sequence
    machine = {"per_node": per_node, "network_gb_per_s": network_gb_per_s}
    knobs = {"element_bytes": 2 if base["precision"] == "bfloat16" else 4, **machine}
    measured = steps.set_index(["strategy", "ranks"])["step_ms"] / 1e3
    rows = []
    for strategy in [name for name in steps["strategy"].unique() if name != "single"]:
        for count in gpus:
            fitted_ranks, known = _lines_at(lines, count)
            step, fixed = (
                project(plan.model(vocabulary), strategy, count, compute_s, known, fitted_ranks=ranks, **knobs)
                for ranks in (fitted_ranks, count)
            )
            took_s = measured.get((strategy, count), float("nan"))
            rows.append(
                _Row(
                    strategy,
                    count,
                    tokens_per_s=count * tokens / step.step_s,
                    efficiency=compute_s / step.step_s,
                    measured_tokens_per_s=count * tokens / took_s,
                    error=took_s / step.step_s - 1,
                    exposed_ms=1e3 * step.exposed_s,
                    communication_ms=1e3 * step.communication_s,
                    latency_ms=1e3 * step.latency_s,
                    efficiency_at_fixed_alpha=compute_s / fixed.step_s,
                )
            )
    table = of_run(
        pd.DataFrame(rows, columns=_Row._fields), strategies_run, **machine, micro_batch=int(base["micro_batch"])
    )
    return like(table, table, lines)


def _steps(run: Run, load: str, micro_batch: int | None) -> pd.DataFrame:
    """Return the measured steps of one micro-batch, the single GPU's and those alike; one of a single GPU is there."""
    steps = run.medians(_STEP, "step_ms")
    steps = steps[(steps["load"] == load) & (steps["micro_batches"] == 1)]
    if micro_batch is not None:
        steps = steps[steps["micro_batch"] == micro_batch]
    single = steps[(steps["strategy"] == "single") & (steps["ranks"] == 1) & steps["step_ms"].notna()]
    if single.empty:
        raise ValueError(f"no single GPU took a step of one micro-batch at {load=}, {micro_batch=}")
    alike = steps[(steps[_SHARED] == single.iloc[0][_SHARED]).all(axis=1)]
    return pd.concat([single.head(1), alike[alike["strategy"] != "single"]])


def _lines_at(lines: pd.DataFrame, count: int) -> tuple[int, dict[str, Link]]:
    """Return the number of ranks whose lines serve `count` GPUs, and these lines by collective."""
    fitted_ranks = count if count in set(lines["ranks"]) else int(lines["ranks"].max())
    rows = lines[lines["ranks"] == fitted_ranks]
    return fitted_ranks, {row.collective: Link(row.alpha_us / 1e6, row.beta_gb_per_s) for row in rows.itertuples()}
