"""What matters of lab 11: our sharded update and step beside torch's, and what a rank holds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, figure_of, repeats, workers
from lessons.optimizer_sharding.tables import complete, memory, steps

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _step(run: Run, way: str) -> Measured | None:
    plan = run.plan
    times = repeats(run, "ms", way=way, optimizer="adamw", kernel="foreach", part="step")
    return Measured.of(times, f"{plan.layers} layers of {plan.hidden}, foreach, {workers(run)}")


def _over_torch(run: Run, ratio: str, optimizer: str, kernel: str) -> Measured | None:
    """Return our update or step over that of the faster of torch's two; the goal is XL's, not a middle size's."""
    if run.plan.size == "middle":
        return None
    return figure_of(run, steps(run), ratio, way="sharded", optimizer=optimizer, kernel=kernel)


def _peak_over_torch(run: Run, kernel: str) -> Measured | None:
    table = memory(run)
    peaks = complete(table[table["kernel"] == kernel]).groupby("way")["peak"].max()
    if run.plan.size == "middle" or not {"sharded", "zero_redundancy", "zero_buckets"} <= {*peaks.index}:
        return None
    return figure(run, peaks["sharded"] / peaks[["zero_redundancy", "zero_buckets"]].min())


FIGURES = {
    "sharded": partial(_step, way="sharded"),
    "zero_redundancy": partial(_step, way="zero_redundancy"),
    "foreach_update": partial(_over_torch, ratio="over_torch", optimizer="adamw", kernel="foreach"),
    "foreach_step": partial(_over_torch, ratio="step_over_torch", optimizer="adamw", kernel="foreach"),
    "fused_update": partial(_over_torch, ratio="over_torch", optimizer="adamw", kernel="fused"),
    "fused_step": partial(_over_torch, ratio="step_over_torch", optimizer="adamw", kernel="fused"),
    "momentum_update": partial(_over_torch, ratio="over_torch", optimizer="momentum", kernel="foreach"),
    "momentum_step": partial(_over_torch, ratio="step_over_torch", optimizer="momentum", kernel="foreach"),
    "foreach_peak": partial(_peak_over_torch, kernel="foreach"),
    "fused_peak": partial(_peak_over_torch, kernel="fused"),
    "unexplained": lambda run: figure(run, 100 * memory(run)["unexplained_share"].abs().max()),
}
