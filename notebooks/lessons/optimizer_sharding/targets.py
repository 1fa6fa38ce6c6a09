"""What a run of lab 11 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.targets import CODE, HOST, Target, card_of
from lessons.optimizer_sharding.tables.balance import equality, faults, owned, symptoms
from lessons.optimizer_sharding.tables.measured import complete, memory, sent, steps

if TYPE_CHECKING:
    from labkit.engine.run import Run


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show, as of `labkit.tables.targets.card`; none without several GPUs."""
    shown = {"memory": _memory, "steps": _steps, "equality": _equality, "trial": _trial}
    return card_of(run, "optimizer_sharding", shown, counted=("memory", "equality"))


def _memory(run: Run) -> list[Target]:
    table, moved = memory(run), sent(run)
    unexplained = 100 * float(table["unexplained_share"].abs().max())
    excess = 100 * float(owned(run).set_index("way").loc["sharded", "excess"])
    targets = [
        Target(f"largest unexplained share, of {len(table)} peaks", unexplained, "≤", 10, "%", depends_on=CODE),
        Target("fullest rank's states over 1/N", excess, "≤", 5, "%", depends_on=CODE),
        _count("updates that send parameters once", moved["equal"]),
    ]
    for kernel, kernel_rows in table.groupby("kernel", sort=False):
        peaks = (
            complete(kernel_rows).groupby("way")["peak"].max().reindex(["sharded", "zero_redundancy", "zero_buckets"])
        )
        ratio = float(peaks["sharded"] / peaks.drop("sharded").min())
        targets.append(Target(f"peak over torch's leaner one, {kernel}", ratio, "≤", 1.01, "×", depends_on=CODE))
    return targets


def _steps(run: Run) -> list[Target]:
    targets = []
    for row in steps(run).query("way == 'sharded'").itertuples():
        named = f"{row.optimizer}, {row.kernel}"
        for part, ratio, spread in (
            ("update", row.over_torch, row.spread_over_torch),
            ("step", row.step_over_torch, row.spread_step_over_torch),
        ):
            targets.append(
                Target(f"{named}: {part} over torch's faster one", ratio, "≤", 0.95, "×", spread, depends_on=HOST)
            )
    return targets


def _equality(run: Run) -> list[Target]:
    table = equality(run)
    worst = 1e6 * float(table[["error", "drift"]].max(axis=None))
    return [
        Target("largest error after 10 steps", worst, "≤", 1, "millionths", depends_on=CODE),
        _count("cases equal to unsharded", table["equal"]),
    ]


def _trial(run: Run) -> list[Target]:
    table = symptoms(run)
    wrong = table[table["variant"] != "right"]
    return [_count("wrong optimizers caught", pd.Series([bool(faults(row)) for row in wrong.to_dict("records")]))]


def _count(what: str, reached: pd.Series) -> Target:
    """Return the target that all of these hold."""
    return Target(f"{what}, of {len(reached)}", float(reached.sum()), "=", len(reached), depends_on=CODE)
