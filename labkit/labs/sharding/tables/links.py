"""Rows of timed collectives → bus bandwidth, lines fitted to it, and training steps projected from these lines."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from labkit.labs.sharding.theory import project
from labkit.tables.lines import about
from labkit.tables.lines import fits as fits
from labkit.tables.lines import links as links
from labkit.theory.lines import Link

STEP = ["strategy", "ranks", "micro_batch", "micro_batches", "load", "precision", "vocabulary"]
SAME = ["micro_batch", "precision", "vocabulary"]  # what the projected share with the single GPU
COLUMNS = [
    "strategy",
    "gpus",
    "tokens_per_s",
    "efficiency",
    "measured_tokens_per_s",
    "error",
    "exposed_ms",
    "communication_ms",
    "latency_ms",
    "efficiency_at_fixed_alpha",
]


def projection(
    links_run,
    strategies_run,
    *,
    micro_batch: int | None = None,
    load: str = "large",
    gpus: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    per_node: int = 8,
    network_gb_per_s: float = 50.0,
) -> pd.DataFrame:
    """Give one row a strategy and number of GPUs (COLUMNS): its speed by `project`, beside the measured one.

    Every GPU takes one micro-batch, that of the single GPU's step at `load` (and `micro_batch`, where given), which
    gives the compute. Lines are those fitted at as many ranks, or at the most that were timed. 50 GB/s a GPU is the
    one 400 Gbit/s InfiniBand card that each GPU of a DGX H100 has. efficiency is over the single GPU's speed; error
    is predicted over measured, less 1 (NaN where it was not measured). How α grows with a ring is the projection's
    boldest guess: efficiency_at_fixed_alpha has it stay as it was. attrs: per_node, network_gb_per_s, micro_batch.
    Raises ValueError where no single GPU took such a step, or no line could be fitted.
    """
    steps = strategies_run.medians(STEP, "step_ms")
    steps = steps[(steps["load"] == load) & (steps["micro_batches"] == 1)]
    if micro_batch is not None:
        steps = steps[steps["micro_batch"] == micro_batch]
    single = steps[(steps["strategy"] == "single") & (steps["ranks"] == 1) & steps["step_ms"].notna()]
    if single.empty:
        raise ValueError(f"no single GPU took a step of one micro-batch at {load=}, {micro_batch=}")
    base = single.iloc[0]
    steps = steps[(steps[SAME] == base[SAME]).all(axis=1)]
    model, lines = strategies_run.plan.model(int(base["vocabulary"])), fits(links_run)
    if lines.empty:
        raise ValueError("no collective was timed at two sizes")
    compute_s, element_bytes = base["step_ms"] / 1e3, 2 if base["precision"] == "bfloat16" else 4
    tokens = int(base["micro_batch"]) * strategies_run.plan.sequence
    measured = steps.set_index(["strategy", "ranks"])["step_ms"]
    rows = []
    for strategy in [name for name in steps["strategy"].unique() if name != "single"]:
        for count in gpus:
            fitted, known = _lines_at(lines, count)
            step, fixed = (
                project(
                    model,
                    strategy,
                    count,
                    compute_s,
                    known,
                    fitted_ranks=ranks,
                    element_bytes=element_bytes,
                    per_node=per_node,
                    network_gb_per_s=network_gb_per_s,
                )
                for ranks in (fitted, count)
            )
            took = measured.get((strategy, count), float("nan")) / 1e3
            rows.append(
                (
                    strategy,
                    count,
                    count * tokens / step.step_s,
                    compute_s / step.step_s,
                    count * tokens / took,
                    took / step.step_s - 1,
                    1e3 * step.exposed_s,
                    1e3 * step.communication_s,
                    1e3 * step.latency_s,
                    compute_s / fixed.step_s,
                )
            )
    table = about(pd.DataFrame(rows, columns=COLUMNS), strategies_run)
    sources = dict.fromkeys(run.source for run in (strategies_run, links_run))
    table.attrs |= {
        "source": " · ".join(sources),
        "per_node": per_node,
        "network_gb_per_s": network_gb_per_s,
        "micro_batch": int(base["micro_batch"]),
    }
    return table


def _lines_at(lines: pd.DataFrame, count: int) -> tuple[int, dict[str, Link]]:
    """Give the number of ranks whose lines serve `count` GPUs, and these lines by collective."""
    fitted = count if count in set(lines["ranks"]) else int(lines["ranks"].max())
    rows = lines[lines["ranks"] == fitted]
    return fitted, {row.collective: Link(row.alpha_us / 1e6, row.beta_gb_per_s) for row in rows.itertuples()}
