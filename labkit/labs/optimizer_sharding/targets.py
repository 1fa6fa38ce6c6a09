"""What a run of lab 11 reaches of the lab's targets."""

from __future__ import annotations

import pandas as pd

from labkit.labs.optimizer_sharding.tables.balance import equality, faults, owned, symptoms
from labkit.labs.optimizer_sharding.tables.measured import complete, memory, sent, steps
from labkit.tables.targets import card_of

MOST_EXCESS, FASTER = 0.05, 0.95


def scorecard(run) -> pd.DataFrame:
    """Give the targets that this run can show: lab, target, measured, goal, unit, met; none without several GPUs."""
    shown = {"memory": _memory, "steps": _steps, "equality": _equality, "trial": _trial}
    return card_of(run, "optimizer_sharding", shown)


def _memory(run) -> list[tuple]:
    table = memory(run)
    worst = 100 * table["unexplained_share"].abs().max()
    shares = owned(run).set_index("way")
    excess = 100 * shares.loc["sharded", "excess"]
    rows = [
        (f"largest unexplained share, of {len(table)} peaks", worst, "≤ 10", "%", worst <= 10),
        ("fullest rank's states over 1/N", excess, "≤ 5", "%", excess <= 100 * MOST_EXCESS),
    ]
    moved = sent(run)
    once, count = int(moved["equal"].sum()), len(moved)
    rows.append((f"updates that send each parameter once, of {count}", once, f"{count}", "", once == count))
    for kernel, own in table.groupby("kernel", sort=False):
        peaks = complete(own).groupby("way")["peak"].max().reindex(["sharded", "zero_redundancy", "zero_buckets"])
        ratio = peaks["sharded"] / peaks.drop("sharded").min()
        rows.append((f"peak over torch's leaner one, {kernel}", ratio, "≤ 1.01", "×", ratio <= 1.01))
    return rows


def _steps(run) -> list[tuple]:
    rows = []
    for row in steps(run).itertuples():
        if row.way == "sharded":
            for part, ratio in (("update", row.over_torch), ("step", row.step_over_torch)):
                named = f"{row.optimizer}, {row.kernel}: {part} over torch's faster one"
                rows.append((named, ratio, "≤ 0.95", "×", ratio <= FASTER))
    return rows


def _equality(run) -> list[tuple]:
    table = equality(run)
    worst = 1e6 * table[["error", "drift"]].max(axis=None)
    equal, count = int(table["equal"].sum()), len(table)
    return [
        ("largest error after 10 steps", worst, "≤ 1", "millionths", worst <= 1),
        (f"cases equal to unsharded, of {count}", equal, f"{count}", "", equal == count),
    ]


def _trial(run) -> list[tuple]:
    table = symptoms(run)
    wrong = table[table["variant"] != "right"]
    caught = sum(bool(faults(row)) for row in wrong.to_dict("records"))
    return [(f"wrong optimizers caught, of {len(wrong)}", caught, f"{len(wrong)}", "", caught == len(wrong))]
