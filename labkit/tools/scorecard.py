"""What the recorded runs reach, target by target: `make scorecard` prints it as CSV."""

from __future__ import annotations

import sys

import pandas as pd

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.repository import RECORDED, lesson_names
from labkit.tables.goals import COLUMNS as OF_TARGETS
from labkit.tables.goals import goals_table, scorecard_of
from labkit.tables.measures import measures_of

COLUMNS = [*(name for name in OF_TARGETS if name != "reason"), "machine", "run", "reason"]
NOT_RUN = "–"


def scorecard() -> pd.DataFrame:
    """Return lab, target, measured, goal, unit and met for each target of the recorded runs, and what measured it.

    Targets that a lab expects and no recorded run shows are "not recorded".
    """
    cards = [_of_run(replay(file.parent)) for file in sorted(RECORDED.rglob("plan.json"))]
    in_cards = {key for card in cards for key in zip(card["lab"], card["target"], strict=True)}
    missing = [
        targets[[key not in in_cards for key in zip(targets["lab"], targets["target"], strict=True)]]
        for lab in lesson_names()
        if len(targets := _unmeasured_goals(lab))
    ]
    table = pd.concat([card for card in (*cards, *missing) if len(card)], ignore_index=True).reindex(columns=COLUMNS)
    return table.fillna({"machine": NOT_RUN, "run": NOT_RUN})


def _of_run(run: Run) -> pd.DataFrame:
    """Return the targets that the run measures, with its machine and name."""
    return scorecard_of(run).assign(machine=run.machine, run=str(run.folder.relative_to(RECORDED)))


def _unmeasured_goals(lab: str) -> pd.DataFrame:
    """Return the goals of the lab's measures, none of them measured."""
    return goals_table(lab, [(measure, None) for measure in measures_of(lab) if measure.comparison])


if __name__ == "__main__":
    scorecard().to_csv(sys.stdout, index=False)
