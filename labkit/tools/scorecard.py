"""What the recorded runs reach, target by target: `make scorecard` prints it as CSV."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from labkit.engine.run import RECORDED, Run, replay
from labkit.tables.published import published

if TYPE_CHECKING:
    import pandas as pd


def scorecard(runs: list[Run] | None = None) -> pd.DataFrame:
    """Give lab, target, measured, goal, unit and met for each target of the given runs.

    Without any: of all recorded ones, and of the lab that runs nothing, accounting.
    """
    import pandas as pd

    def tables(lab: str):
        return importlib.import_module(f"labkit.labs.{lab}.tables")

    cards = []
    if runs is None:
        runs = [replay(file.parent) for file in sorted(RECORDED.rglob("plan.json"))]
        cards.append(tables("accounting").scorecard(published("communication_accounting")))
    cards += [tables(run.plan.lab).scorecard(run) for run in runs]
    columns = ["lab", "target", "measured", "goal", "unit", "met"]
    found = [card for card in cards if len(card)]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


if __name__ == "__main__":
    scorecard().to_csv(sys.stdout, index=False)
