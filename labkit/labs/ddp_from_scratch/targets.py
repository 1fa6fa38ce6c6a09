"""What a run of lab 10 reaches of the lab's targets."""

from __future__ import annotations

import pandas as pd

from labkit.labs.ddp_from_scratch.tables.buckets import buckets
from labkit.labs.ddp_from_scratch.tables.steps import equality, implementations, overlap
from labkit.tables.targets import card_of

GOAL = 1.03  # times torch's step


def scorecard(run) -> pd.DataFrame:
    """Give the targets that this run can show: lab, target, measured, goal, unit, met; none without several GPUs."""
    shown = {"implementations": _implementations, "buckets": _buckets, "equality": _equality}
    return card_of(run, "ddp_from_scratch", shown)


def _implementations(run) -> list[tuple]:
    table = implementations(run).set_index("strategy")
    return [_ratio("bucketed over torch's DDP", table["over_ddp"].get("bucketed", float("nan"))), _sent(run)]


def _buckets(run) -> list[tuple]:
    table = buckets(run)
    best = table.loc[table["strategy"] == "bucketed", "over_ddp"].min()
    return [_ratio("best bucket size over torch's DDP", best), _sent(run)]


def _equality(run) -> list[tuple]:
    table = equality(run)
    wrong = int((~table["equal"]).sum())
    return [(f"cases unlike one process, of {len(table)}", wrong, "0", "", wrong == 0)]


def _ratio(target: str, ratio: float) -> tuple:
    return target, ratio, f"≤ {GOAL}", "×", bool(ratio <= GOAL)


def _sent(run) -> tuple:
    table = overlap(run)
    ours = table[table["strategy"] != "ddp"]
    wrong = int((~ours["equal"].astype(bool)).sum())
    return f"settings that send unlike the formula, of {len(ours)}", wrong, "0", "", wrong == 0
