"""What the recorded runs reach, target by target: `make scorecard` prints it as CSV."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from labkit.engine.run import RECORDED, Run, replay

if TYPE_CHECKING:
    import pandas as pd


def scorecard(runs: list[Run] | None = None) -> pd.DataFrame:
    """Give lab, target, measured, goal, unit and met for each target of the given runs, or of all recorded ones."""
    import pandas as pd

    if runs is None:
        runs = [replay(file.parent) for file in sorted(RECORDED.rglob("plan.json"))]
    cards = [importlib.import_module(f"labkit.labs.{run.plan.lab}.tables").scorecard(run) for run in runs]
    columns = ["lab", "target", "measured", "goal", "unit", "met"]
    found = [card for card in cards if len(card)]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


if __name__ == "__main__":
    scorecard().to_csv(sys.stdout, index=False)
