"""What a run of lab 08 reaches of the lab's targets."""

from __future__ import annotations

import pandas as pd

from labkit.labs.attention.tables import memory, speed
from labkit.tables.targets import card_of

TARGET_MS = 4.0  # forward and backward, 16 heads, N = 16 384, d = 64, causal, bfloat16
LONG = 65536


def scorecard(run) -> pd.DataFrame:
    """Give the targets that this run can show: lab, target, measured, goal, unit, met; none without a GPU."""
    shown = {"race": _race, "errors": _errors, "memory": _memory, "trial": _trial}
    return card_of(run, "attention", shown, least_gpus=1)


def _race(run) -> list[tuple]:
    table = speed.race(run)
    ours = table[table["implementation"] == "flash"]
    launched = ours[ours["clock"] == "launched"]
    at = launched[(launched["sequence"] == 16384) & (launched["head_dim"] == 64) & (launched["phase"] == "both")]
    best = at["ms"].iloc[0]
    rows = [("forward + backward, N 16 384, d 64, causal", best, "≤ 4.0", "ms", best <= TARGET_MS)]
    for clock, own in ours.groupby("clock", sort=False):
        worst = own.loc[own["versus"].idxmax()]
        named = f"{clock} over SDPA-flash: {worst['phase']}, N {worst['sequence']}, d {worst['head_dim']}"
        rows.append((named, worst["versus"], "≤ 1", "×", worst["versus"] <= 1))
    ran = launched[launched["sequence"] == LONG]["ms"].notna().sum()
    return [*rows, ("phases measured at N 65 536, of 6", ran, "6", "", ran == 6)]


def _errors(run) -> list[tuple]:
    table = memory.errors(run)
    rows = []
    for precision, own in table[table["implementation"] == "flash"].groupby("precision", sort=False):
        worst, goal = own["worst"].max(), own["tolerance"].iloc[0]
        rows.append((f"largest error, {precision}", 1e3 * worst, f"≤ {1e3 * goal:g}", "thousandths", worst <= goal))
    same = bool(table[table["implementation"] == "flash"]["same_bits"].all())
    return [*rows, ("a second run gives the same bits", float(same), "1", "", same)]


def _memory(run) -> list[tuple]:
    table = memory.held(run)
    ours = table[table["implementation"] == "flash"]
    growth = ours["exponent"].dropna().iloc[-1]
    return [("what is kept grows with N to the power", growth, "1", "", abs(growth - 1) < 0.02)]


def _trial(run) -> list[tuple]:
    rows = run.rows[run.rows["variant"] != "right"]
    wrong = (rows["sees_ahead"] > 0) | (rows["early_weight"] > 1.01) | (rows["products"] > 0)
    caught = int((wrong | (rows[["forward_largest", "backward_largest"]].max(axis=1) >= 1)).sum())
    return [(f"wrong attentions caught, of {len(rows)}", caught, f"{len(rows)}", "", caught == len(rows))]
