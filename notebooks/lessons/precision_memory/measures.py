"""What matters of lab 07: peaks that the ledger explains, the lowest peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure
from labkit.theory.sizes import MIB
from labkit.theory.step_memory import ledger
from lessons.precision_memory.tables import timeline
from lessons.precision_memory.theory.memory import shape_of

if TYPE_CHECKING:
    from labkit.engine.run import Run


def timeline_beside_ledger(run: Run) -> Measured:
    """Return by how many percent the timeline's peak exceeds the ledger's, in the precision where most."""
    apart = []
    for precision in run.plan.precisions:
        peak = timeline(run, precision)["allocated_mib"].max() * MIB
        due = sum(ledger(shape_of(run.plan, precision=precision), "steady step").values())
        apart.append(100 * (peak / due - 1))
    return figure(run, max(apart, key=abs))
