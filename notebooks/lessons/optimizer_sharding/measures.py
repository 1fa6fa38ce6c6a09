"""What matters of lab 11: our sharded update and step beside torch's, what a rank holds, and whether it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.tables.measures import CODE, HOST, LOWER, Measure, Measured, figure, repeats, workers
from lessons.optimizer_sharding.tables import complete, equality, faults, memory, owned, sent, steps, symptoms

if TYPE_CHECKING:
    from labkit.engine.run import Run

    Shown = Callable[[Run], Measured | None]

_STEPS = {"sharded": "the lab's sharded AdamW", "zero_redundancy": "torch's ZeroRedundancyOptimizer"}
_TIMED = (("adamw", "foreach"), ("adamw", "fused"), ("momentum", "foreach"))


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


_GOAL: dict[str, Any] = {"better": LOWER, "comparison": "≤", "on_card": False}
_COUNTED: dict[str, Any] = _GOAL | {"depends_on": CODE}


def _on(gpus: int, name: str, unit: str, plan: str, measured: Shown, goal: float) -> Measure:
    """Return a measure of a rank's share, which depends on how many GPUs there are."""

    def on_so_many(run: Run) -> Measured | None:
        return measured(run) if run.plan.gpus == gpus else None

    named = f"{name}, {gpus} GPUs"
    return Measure(name=named, unit=unit, plan=plan, measured=on_so_many, goal=goal, least_gpus=gpus, **_COUNTED)


MEASURES = (
    *(
        Measure(name=f"training step, {name}", unit="ms", plan="steps", measured=_step(way), better=LOWER)
        for way, name in _STEPS.items()
    ),
    *(
        Measure(
            name=f"{optimizer}, {kernel}: {part} over torch's faster one",
            unit="×",
            plan="steps",
            measured=_over_torch(optimizer, kernel, ratio),
            goal=0.95,
            depends_on=HOST,
            least_gpus=2,
            **_GOAL,
        )
        for optimizer, kernel in _TIMED
        for part, ratio in (("update", "over_torch"), ("step", "step_over_torch"))
    ),
    *(
        _on(gpus, *measure)
        for gpus in (2, 4)
        for measure in (
            ("peak over torch's leaner one, foreach", "×", "memory", _peak_over_torch("foreach"), 1.01),
            ("peak over torch's leaner one, fused", "×", "memory", _peak_over_torch("fused"), 1.01),
            ("largest unexplained share of a peak", "%", "memory", _unexplained, 10),
            ("fullest rank's states over 1/N", "%", "memory", _excess, 5),
            ("updates that do not send parameters once", "ways", "memory", _sent_wrong, 0),
            ("largest error after 10 steps", "millionths", "equality", _worst_error, 1),
            ("cases that differ from unsharded", "cases", "equality", _unequal, 0),
        )
    ),
    Measure(
        name="wrong optimizers missed",
        unit="optimizers",
        plan="trial",
        measured=_missed,
        goal=0,
        least_gpus=2,
        **_COUNTED,
    ),
)
