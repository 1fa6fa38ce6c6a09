"""A lab's targets, and what a run reaches of them."""

from __future__ import annotations

import pandas as pd

COLUMNS = ["lab", "target", "measured", "goal", "unit", "met"]


def card(run, shown: dict, lab: str, least: int = 2) -> pd.DataFrame:
    """Give a card of what the function of the run's plan finds, empty where GPUs are fewer than `least`."""
    if run.plan.device != "cuda" or run.plan.gpus < least or run.plan.name not in shown:
        return pd.DataFrame(columns=COLUMNS).astype({"measured": float, "met": bool})
    found = pd.DataFrame(shown[run.plan.name](run), columns=COLUMNS[1:])
    found["measured"] = found["measured"].astype(float).round(3)
    found.insert(0, "lab", lab)
    return found


def ledgers(held: pd.DataFrame, moved: pd.DataFrame) -> list[tuple]:
    """Give the two targets of ledgers: the largest unexplained share of a peak, and collectives equal to formula."""
    worst = 100 * held["unexplained_share"].abs().max()
    unequal = int((~moved["equal"].astype(bool)).sum())
    return [
        (f"largest unexplained share, of {len(held)} peaks", worst, "≤ 10", "%", worst <= 10),
        (f"collectives that are not the formula's, of {len(moved)}", unequal, "0", "", unequal == 0),
    ]
