"""What the recorded runs reach of each goal: `make scorecard` prints it as CSV."""

from __future__ import annotations

import sys

import pandas as pd

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.repository import RECORDED, lesson_names
from labkit.tables import goals
from labkit.tables.goals import goals_table, scorecard_of
from labkit.tables.measures import measures_of

COLUMNS = [*(name for name in goals.COLUMNS if name != "reason"), "machine", "run", "reason"]
NOT_RUN = "–"


def scorecard() -> pd.DataFrame:
    """Return lab, figure, measured, goal, unit and met for each goal of the recorded runs, and what measured it.

    Goals that a lab has and no recorded run shows are "not recorded".
    """
    reached = [_of_run(replay(file.parent)) for file in sorted(RECORDED.rglob("plan.json"))]
    measured = {key for table in reached for key in zip(table["lab"], table["figure"], strict=True)}
    missing = [
        unmeasured[[key not in measured for key in zip(unmeasured["lab"], unmeasured["figure"], strict=True)]]
        for lab in lesson_names()
        if len(unmeasured := _unmeasured_goals(lab))
    ]
    tables = [table for table in (*reached, *missing) if len(table)]
    table = pd.concat(tables, ignore_index=True).reindex(columns=COLUMNS)
    return table.fillna({"machine": NOT_RUN, "run": NOT_RUN})


def _of_run(run: Run) -> pd.DataFrame:
    """Return the goals that the run measures, with its machine and name."""
    return scorecard_of(run).assign(machine=run.machine, run=str(run.folder.relative_to(RECORDED)))


def _unmeasured_goals(lab: str) -> pd.DataFrame:
    """Return the goals of the lab's measures, none of them measured."""
    return goals_table(lab, [(measure, None) for measure in measures_of(lab) if measure.comparison])


if __name__ == "__main__":
    scorecard().to_csv(sys.stdout, index=False)
