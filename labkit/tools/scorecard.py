"""What the recorded runs reach, target by target: `make scorecard` prints it as CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import pandas as pd

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.provenance import fact_or
from labkit.repository import RECORDED, lesson_names
from labkit.tables.goals import COLUMNS as OF_TARGETS
from labkit.tables.goals import comparable, goals_table, scorecard_of
from labkit.tables.measures import GPU, measures_of

COLUMNS = [*(name for name in OF_TARGETS if name != "reason"), "machine", "run", "conditions", "reason"]
NO_VALUE = "–"  # nothing to compare with, or nothing was run


def scorecard(runs: Iterable[Run] | None = None) -> pd.DataFrame:
    """Return lab, target, measured, goal, unit and met for each target of the given runs, and what measured it.

    Without runs: of all recorded ones, and, as "not recorded", the targets that a lab expects and no recorded run
    shows. `conditions` is about targets that several runs measure: it says of each later run whether its figure is
    comparable with that of the first run, or what differs between the two.
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
    """Return the targets that the run measures; `measured_as` is what each depends on, and the run's conditions."""
    table = scorecard_of(run)
    recorded, ways = run.folder.is_relative_to(RECORDED), fact_or(table, "of_targets", {})
    keys = zip(table["lab"], table["target"], strict=True)
    name = str(run.folder.relative_to(RECORDED)) if recorded else run.folder.name
    return table.assign(machine=run.machine, run=name, measured_as=[ways.get(key, (GPU, {})) for key in keys])


def _unmeasured_goals(lab: str) -> pd.DataFrame:
    """Return the goals of the lab's measures, none of them measured."""
    return goals_table(lab, [(measure, None) for measure in measures_of(lab) if measure.comparison])


def _concatenate(cards: Iterable[pd.DataFrame]) -> pd.DataFrame:
    nonempty_cards = [card for card in cards if len(card)]
    if not nonempty_cards:
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(nonempty_cards, ignore_index=True)
    return (
        table.assign(conditions=_conditions(table))
        .reindex(columns=COLUMNS)
        .fillna({"machine": NO_VALUE, "run": NO_VALUE})
    )


def _conditions(table: pd.DataFrame) -> list[str]:
    """Return for each row whether it is comparable with the first row of the same target, where it is not that one."""
    first_of: dict[tuple[str, str], dict[Any, Any]] = {}
    comparisons = []
    for row in table.reindex(columns=["lab", "target", "run", "measured_as"]).to_dict("records"):
        first = first_of.setdefault((row["lab"], row["target"]), row)
        comparisons.append(
            NO_VALUE if first is row else comparable(first["measured_as"], row["measured_as"], first["run"])
        )
    return comparisons


if __name__ == "__main__":
    scorecard().to_csv(sys.stdout, index=False)
