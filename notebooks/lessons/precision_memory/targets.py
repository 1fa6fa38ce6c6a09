"""What a run of lab 07 reaches of the lab's targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from labkit.tables.targets import CODE, Target, card, card_of
from lessons.precision_memory.tables.memory import faults, levers, memory, symptoms, timeline
from lessons.precision_memory.tables.numbers import dtypes, sums
from lessons.precision_memory.theory.levers import VARIANTS
from lessons.precision_memory.theory.memory import ledger, shape_of

if TYPE_CHECKING:
    from labkit.engine.run import Run

BUGS = len(VARIANTS) - 1
PEAKS = 32  # 4 contexts, 2 precisions, 4 phases
EXPECTED = (
    Target("ways to sum in which torch gives the simulated bits, of 5", None, "=", 5),
    Target("dtype of the loss under autocast is float32, of 2", None, "=", 2),
    Target(f"largest unexplained share, of {PEAKS} peaks", None, "≤", 10, "%"),
    Target("timeline's peak beside the ledger's", None, "within ±", 10, "%"),
    Target("lowest peak of all levers, of the plain step's", None, "≤", 50, "%"),
    Target(f"wrong loops caught, of {BUGS}", None, "=", BUGS),
)


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show, as of `labkit.tables.targets.card`; none without a GPU."""
    by_plan = {"numbers": _numbers, "memory": _memory, "timeline": _timeline, "levers": _levers, "trial": _trial}
    return card_of(run, "precision_memory", by_plan, least_gpus=1)


def all_targets(runs: Iterable[Run]) -> pd.DataFrame:
    """Return what the runs reach, and as "not recorded" the targets that none of them shows."""
    found = [scorecard(run) for run in runs]
    shown = {name for one in found for name in one["target"]}
    missing = card("precision_memory", (one for one in EXPECTED if one.what not in shown))
    return pd.concat([one for one in [*found, missing] if len(one)], ignore_index=True)


def _numbers(run: Run) -> list[Target]:
    equal = sums(run)["equal"].dropna()
    loss = dtypes(run).set_index("what").loc["loss", ["float16", "bfloat16"]]
    return [
        Target(
            f"ways to sum in which torch gives the simulated bits, of {len(equal)}",
            int(equal.sum()),
            "=",
            len(equal),
            depends_on=CODE,
        ),
        Target(
            "dtype of the loss under autocast is float32, of 2", int((loss == "float32").sum()), "=", 2, depends_on=CODE
        ),
    ]


def _memory(run: Run) -> list[Target]:
    table = memory(run)
    known = table["unexplained_share"].dropna()
    return [
        Target(
            f"largest unexplained share, of {len(known)} peaks",
            100 * float(known.abs().max()),
            "≤",
            10,
            "%",
            depends_on=CODE,
        )
    ]


def _timeline(run: Run) -> list[Target]:
    apart = []
    for precision in run.plan.precisions:
        peak = timeline(run, precision)["allocated_mib"].max() * 2**20
        due = sum(ledger(shape_of(run.plan, precision=precision), "steady step").values())
        apart.append(100 * (peak / due - 1))
    return [Target("timeline's peak beside the ledger's", max(apart, key=abs), "within ±", 10, "%", depends_on=CODE)]


def _levers(run: Run) -> list[Target]:
    lowest = 100 * float(levers(run)["peak_ratio"].min())
    return [Target("lowest peak of all levers, of the plain step's", lowest, "≤", 50, "%", depends_on=CODE)]


def _trial(run: Run) -> list[Target]:
    rows = symptoms(run).to_dict("records")
    caught = sum(faults(row) == [row["variant"]] for row in rows)
    return [Target(f"wrong loops caught, of {len(rows)}", caught, "=", len(rows), depends_on=CODE)]
