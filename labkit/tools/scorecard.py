"""What the recorded runs reach, target by target: `make scorecard` prints it as CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pandas as pd

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.repository import RECORDED, lesson_names
from labkit.tables.goals import COLUMNS as OF_TARGETS
from labkit.tables.goals import goals_table, scorecard_of
from labkit.tables.measures import measures_of

COLUMNS = [*(name for name in OF_TARGETS if name != "reason"), "machine", "run", "reason"]
NOT_RUN = "–"


def scorecard(runs: Iterable[Run] | None = None) -> pd.DataFrame:
    """Return lab, target, measured, goal, unit and met for each target of the given runs, and what measured it.

    Without runs: of all recorded ones, and, as "not recorded", the targets that a lab expects and no recorded run
    shows.
    """
    if runs is not None:
        return _concatenate([_of_run(run) for run in runs])
    recorded = [replay(file.parent) for file in sorted(RECORDED.rglob("plan.json"))]
    cards = [_of_run(run) for run in recorded]
    in_cards = {key for card in cards for key in zip(card["lab"], card["target"], strict=True)}
    expected = [targets for targets in map(_unmeasured_goals, lesson_names()) if len(targets)]
    missing = [
        targets[[key not in in_cards for key in zip(targets["lab"], targets["target"], strict=True)]]
        for targets in expected
    ]
    return _concatenate([*cards, *missing])


def _of_run(run: Run) -> pd.DataFrame:
    """Return the targets that the run measures, with its machine and name."""
    recorded = run.folder.is_relative_to(RECORDED)
    name = str(run.folder.relative_to(RECORDED)) if recorded else run.folder.name
    return scorecard_of(run).assign(machine=run.machine, run=name)


def _unmeasured_goals(lab: str) -> pd.DataFrame:
    """Return the goals of the lab's measures, none of them measured."""
    return goals_table(lab, [(measure, None) for measure in measures_of(lab) if measure.comparison])


def _concatenate(cards: Iterable[pd.DataFrame]) -> pd.DataFrame:
    nonempty_cards = [card for card in cards if len(card)]
    if not nonempty_cards:
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(nonempty_cards, ignore_index=True).reindex(columns=COLUMNS)
    return table.fillna({"machine": NOT_RUN, "run": NOT_RUN})


if __name__ == "__main__":
    scorecard().to_csv(sys.stdout, index=False)
