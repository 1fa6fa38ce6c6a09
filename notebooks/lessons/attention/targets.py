"""What a run of lab 08 reaches of the lab's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import fact
from labkit.tables.targets import CODE, GPU, HOST, Target, card_of
from lessons.attention.tables import memory, speed

if TYPE_CHECKING:
    from labkit.engine.run import Run

_TARGET_MS = 4.0  # forward and backward, 16 heads, N = 16 384, d = 64, causal, bfloat16
_LONG = 65536
_LINEAR = 1.02  # a power of N up to which growth counts as linear


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show: lab, target, measured, goal, unit, met; none without a GPU."""
    by_plan = {"race": _race, "errors": _errors, "memory": _memory, "trial": _trial}
    return card_of(run, "attention", by_plan, least_gpus=1)


def _race(run: Run) -> list[Target]:
    table = speed.race(run)
    table["spread"] = ((table["high_ms"] - table["low_ms"]) / 2).fillna(0.0)
    flash_rows = table[table["implementation"] == "flash"]
    launched = flash_rows[flash_rows["clock"] == "launched"]
    at = launched[(launched["sequence"] == 16384) & (launched["head_dim"] == 64) & (launched["phase"] == "both")]
    ms, spread = at["ms"].iloc[0], at["spread"].iloc[0]
    targets = [Target("forward + backward, N 16 384, d 64, causal", ms, "≤", _TARGET_MS, "ms", spread)]
    for clock, group in flash_rows.groupby("clock", sort=False):
        worst = group.loc[group["versus"].idxmax()]
        named = f"{clock} over SDPA-flash: {worst['phase']}, N {worst['sequence']}, d {worst['head_dim']}"
        targets.append(
            Target(
                named,
                worst["versus"],
                "≤",
                1,
                "×",
                _spread_of_ratio(table, worst),
                depends_on=HOST if clock == "launched" else GPU,
            )
        )
    ran = int(launched[launched["sequence"] == _LONG]["ms"].notna().sum())
    return [*targets, Target("phases measured at N 65 536, of 6", ran, "=", 6, depends_on=CODE)]


def _spread_of_ratio(table: pd.DataFrame, row: pd.Series) -> float:
    """Return the half-width of `versus`: row's and rival's, each half an interquartile range, as parts of them."""
    cell = ["clock", "precision", "head_dim", "sequence", "phase"]
    rival = table[(table["implementation"] == fact(table, "rival")) & (table[cell] == row[cell]).all(axis=1)].iloc[0]
    return row["versus"] * (row["spread"] / row["ms"] + rival["spread"] / rival["ms"])


def _errors(run: Run) -> list[Target]:
    table = memory.errors(run)
    flash_rows = table[table["implementation"] == "flash"]
    targets = []
    for precision, group in flash_rows.groupby("precision", sort=False):
        worst, goal = 1e3 * group["worst"].max(), 1e3 * group["tolerance"].iloc[0]
        targets.append(Target(f"largest error, {precision}", worst, "≤", goal, "thousandths", depends_on=CODE))
    return [
        *targets,
        Target("a second run gives the same bits", float(flash_rows["same_bits"].all()), "=", 1, depends_on=CODE),
    ]


def _memory(run: Run) -> list[Target]:
    table = memory.held(run)
    growth = table[table["implementation"] == "flash"]["exponent"].dropna().iloc[-1]
    return [Target("what is kept grows with N to the power", growth, "≤", _LINEAR, depends_on=CODE)]


def _trial(run: Run) -> list[Target]:
    rows = run.rows[run.rows["variant"] != "right"]
    wrong = (rows["sees_ahead"] > 0) | (rows["early_weight"] > 1.01) | (rows["products"] > 0)
    caught = int((wrong | (rows[["forward_largest", "backward_largest"]].max(axis=1) >= 1)).sum())
    return [Target(f"wrong attentions caught, of {len(rows)}", caught, "=", len(rows), depends_on=CODE)]
