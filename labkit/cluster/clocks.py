"""By how much the nodes' clocks differ, as the ranks of a run have measured it."""

from __future__ import annotations

from labkit.engine.lines import read_lines
from labkit.engine.run import Run


def measured_clocks(run: Run) -> list[dict[str, float]]:
    """Return `ahead_us` of each node's monotonic clock to node 0's, and `round_trip_us`: twice the bound of its error.

    Where a node's first rank has measured nothing, its entry is empty.
    """
    clocks = []
    for node in range(run.node_count):
        events = read_lines(run.events_file(node * run.plan.gpus // run.node_count))
        newest = next((event for event in reversed(events) if event.get("event") == "clock"), {})
        clocks.append({name: round(newest[name], 1) for name in ("ahead_us", "round_trip_us") if name in newest})
    return clocks
