"""What a run of lab 10 reaches of the lab's targets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.targets import CODE, HOST, Target, card_of
from lessons.ddp_from_scratch.tables.buckets import buckets
from lessons.ddp_from_scratch.tables.steps import equality, implementations, overlap
from lessons.ddp_from_scratch.theory import GOAL_OVER_DDP

if TYPE_CHECKING:
    from labkit.engine.run import Run


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show, as of `labkit.tables.targets.card`; none without several GPUs."""
    by_plan = {"implementations": _implementations, "buckets": _buckets, "equality": _equality}
    return card_of(run, "ddp_from_scratch", by_plan, counted=by_plan)


def _implementations(run: Run) -> list[Target]:
    if run.plan.samples != type(run.plan).samples:  # a report's batch: for comparison, without a target
        return []
    return [
        _over_ddp("bucketed's step over torch's DDP's", implementations(run)),
        _sent("strategies", run),
    ]


def _buckets(run: Run) -> list[Target]:
    return [_over_ddp("step of the best size over torch's DDP's", buckets(run)), _sent("sizes", run)]


def _equality(run: Run) -> list[Target]:
    table = equality(run)
    wrong = float((~table["equal"]).sum())
    return [Target(f"cases that differ from one process, of {len(table)}", wrong, "=", 0, depends_on=CODE)]


def _over_ddp(what: str, table: pd.DataFrame) -> Target:
    """Return the smallest ratio of a bucketed step to torch's DDP, with the spread of both medians."""
    rows = table[(table["strategy"] == "bucketed") & table["over_ddp"].notna()]
    if rows.empty:
        return Target(what, None, "≤", GOAL_OVER_DDP, "×")
    best = rows.loc[rows["over_ddp"].idxmin()]
    spread = float(best["spread_over_ddp"])
    return Target(
        what, float(best["over_ddp"]), "≤", GOAL_OVER_DDP, "×", 0.0 if math.isnan(spread) else spread, depends_on=HOST
    )


def _sent(settings: str, run: Run) -> Target:
    """Return how many settings, such as "sizes", make other calls than theory says; torch's DDP is not among them."""
    table = overlap(run)
    own_settings = table[table["strategy"] != "ddp"]
    wrong = float((~own_settings["equal"].astype(bool)).sum())
    return Target(f"{settings} with unexpected calls, of {len(own_settings)}", wrong, "=", 0, depends_on=CODE)
