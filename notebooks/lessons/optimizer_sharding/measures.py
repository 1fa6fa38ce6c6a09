"""What matters of lab 11: our sharded update and step beside torch's, what a rank holds, and whether it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, Shown, figure, repeats, workers
from lessons.optimizer_sharding.tables import complete, equality, faults, memory, owned, sent, steps, symptoms

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _step(way: str) -> Shown:
    def measured(run: Run) -> Measured | None:
        plan = run.plan
        times = repeats(run, "ms", way=way, optimizer="adamw", kernel="foreach", part="step")
        return Measured.of(times, f"{plan.layers} layers of {plan.hidden}, foreach, {workers(run)}")

    return measured


def _over_torch(optimizer: str, kernel: str, ratio: str) -> Shown:
    """Return how a run gives our update or step over that of the faster of torch's two."""

    def measured(run: Run) -> Measured | None:
        table = steps(run)
        ours = (table["way"] == "sharded") & (table["optimizer"] == optimizer) & (table["kernel"] == kernel)
        for row in table[ours].to_dict("records"):
            return figure(run, row[ratio], row[f"spread_{ratio}"])
        return None

    return measured


def _peak_over_torch(kernel: str) -> Shown:
    def measured(run: Run) -> Measured | None:
        table = memory(run)
        peaks = complete(table[table["kernel"] == kernel]).groupby("way")["peak"].max()
        if not {"sharded", "zero_redundancy", "zero_buckets"} <= {*peaks.index}:
            return None
        return figure(run, peaks["sharded"] / peaks[["zero_redundancy", "zero_buckets"]].min())

    return measured


def _unexplained(run: Run) -> Measured:
    return figure(run, 100 * memory(run)["unexplained_share"].abs().max())


def _excess(run: Run) -> Measured:
    return figure(run, 100 * owned(run).set_index("way").loc["sharded", "excess"])


def _sent_wrong(run: Run) -> Measured:
    return figure(run, (~sent(run)["equal"]).sum())


def _worst_error(run: Run) -> Measured:
    return figure(run, 1e6 * equality(run)[["error", "drift"]].max(axis=None))


def _unequal(run: Run) -> Measured:
    return figure(run, (~equality(run)["equal"]).sum())


def _missed(run: Run) -> Measured:
    return figure(run, sum(not faults(row) for row in symptoms(run).to_dict("records") if row["variant"] != "right"))


FIGURES = {
    "sharded": _step("sharded"),
    "zero_redundancy": _step("zero_redundancy"),
    "foreach_update": _over_torch("adamw", "foreach", "over_torch"),
    "foreach_step": _over_torch("adamw", "foreach", "step_over_torch"),
    "fused_update": _over_torch("adamw", "fused", "over_torch"),
    "fused_step": _over_torch("adamw", "fused", "step_over_torch"),
    "momentum_update": _over_torch("momentum", "foreach", "over_torch"),
    "momentum_step": _over_torch("momentum", "foreach", "step_over_torch"),
    "foreach_peak": _peak_over_torch("foreach"),
    "fused_peak": _peak_over_torch("fused"),
    "unexplained": _unexplained,
    "excess": _excess,
    "sent_wrong": _sent_wrong,
    "error": _worst_error,
    "unequal": _unequal,
    "missed": _missed,
}
