"""What a run of lab 02 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.targets import CODE, HOST, Target, card_of
from lessons.broadcast.plan import CHUNKED
from lessons.broadcast.tables import methods

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run

_LEAST_GPUS = 4  # for the goal of the pipelined broadcast, which the report's four GPUs set


def scorecard(run: Run) -> pd.DataFrame:
    """Return the lab's targets as this run reached them: lab, target, measured, goal, unit, met.

    Empty for a Trial and where nothing was pinned: the targets are about pinned memory.
    """
    return card_of(run, "broadcast", {"sweep": _targets})


def _targets(run: Run) -> list[Target]:
    if "pinned" not in run.plan.memories or not {"links", *CHUNKED} <= set(run.plan.methods):
        return []
    table = methods(run)
    pinned = table[(table["memory"] == "pinned") & table["seconds"].notna()]
    fastest = pinned.loc[pinned.groupby("method")["seconds"].idxmin()].set_index("method")
    wrong = int((table["status"] != "ok").sum())

    def target(what: str, method: str, over: str, comparison: str, goal: float) -> Target:
        ratio = fastest.loc[method, "seconds"] / fastest.loc[over, "seconds"]
        spread = sum(fastest.loc[one, "spread_seconds"] / fastest.loc[one, "seconds"] for one in (method, over))
        return Target(what, ratio, comparison, goal, "×", spread=ratio * spread, depends_on=HOST)

    pipelined = "time of best pipelined, divided by scatter + all-gather"
    return [
        target("time of scatter + all-gather, divided by that of links", "scatter_all_gather", "links", "≤", 1.05),
        # as many host links at the same time as GPUs: two of them are twice as fast as one, and no more
        *([target(pipelined, "pipelined", "scatter_all_gather", "≥", 3.4)] if run.plan.gpus >= _LEAST_GPUS else []),
        Target("settings with a wrong copy", wrong, "=", 0, f"of {len(table)}", depends_on=CODE),
    ]
