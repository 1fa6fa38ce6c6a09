"""What matters of lab 07: sums and casts as predicted, peaks that the ledger explains, the lowest peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.tables.measures import CODE, Measure, Measured
from lessons.precision_memory.tables import dtypes, faults, levers, memory, sums, symptoms, timeline
from lessons.precision_memory.theory.memory import ledger, shape_of

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _counted(value: float) -> Measured:
    """Return a figure that every repeat gives alike."""
    return Measured(float(value), float(value), float(value), 1, "")


def _largest_unexplained(run: Run) -> Measured | None:
    shares = memory(run)["unexplained_share"].dropna()
    return _counted(100 * shares.abs().max()) if len(shares) else None


def _timeline_beside_ledger(run: Run) -> Measured:
    """Return by how many percent the timeline's peak exceeds the ledger's, in the precision where most."""
    apart = []
    for precision in run.plan.precisions:
        peak = timeline(run, precision)["allocated_mib"].max() * 2**20
        due = sum(ledger(shape_of(run.plan, precision=precision), "steady step").values())
        apart.append(100 * (peak / due - 1))
    return _counted(max(apart, key=abs))


def _equal_sums(run: Run) -> Measured:
    return _counted(sums(run)["equal"].dropna().sum())


def _lowest_peak(run: Run) -> Measured:
    return _counted(100 * levers(run)["peak_ratio"].min())


def _float32_losses(run: Run) -> Measured:
    return _counted((dtypes(run).set_index("what").loc["loss", ["float16", "bfloat16"]] == "float32").sum())


def _bugs_caught(run: Run) -> Measured:
    return _counted(sum(faults(row) == [row["variant"]] for row in symptoms(run).to_dict("records")))


def _goal(name: str, plan: str, measured: Callable[[Run], Measured | None], *goal: Any, unit: str = "") -> Measure:
    """Return a measure that any machine with a GPU shows, with its goal: a comparison and a number."""
    comparison, number = goal
    return Measure(
        name=name,
        unit=unit,
        plan=plan,
        measured=measured,
        comparison=comparison,
        goal=number,
        on_card=False,
        depends_on=CODE,
        least_gpus=1,
    )


MEASURES = (
    _goal("ways to sum in which torch gives the simulated bits, of 5", "numbers", _equal_sums, "=", 5),
    _goal("dtype of the loss under autocast is float32, of 2", "numbers", _float32_losses, "=", 2),
    _goal("largest unexplained share of the peaks", "memory", _largest_unexplained, "≤", 10, unit="%"),
    _goal("timeline's peak beside the ledger's", "timeline", _timeline_beside_ledger, "within ±", 10, unit="%"),
    _goal("lowest peak of all levers, of the plain step's", "levers", _lowest_peak, "≤", 50, unit="%"),
    _goal("wrong loops caught, of 4", "trial", _bugs_caught, "=", 4),
)
