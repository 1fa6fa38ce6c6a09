"""What the recorded runs reach, target by target: `make scorecard` prints it as CSV."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from labkit.engine.run import Run, replay
from labkit.repository import RECORDED
from labkit.tables.published import published
from labkit.tables.targets import COLUMNS, NOT_RECORDED, card

LABS = Path(__file__).parents[1] / "labs"


def scorecard(runs: Iterable[Run] | None = None) -> pd.DataFrame:
    """Return lab, target, measured, goal, unit and met for each target of the given runs.

    Without runs: of all recorded ones, of the lab that runs nothing (accounting), and, as "not recorded", the targets
    that a lab expects and no recorded run shows.
    """
    if runs is not None:
        return _joined([_lab(run.plan.lab).scorecard(run) for run in runs])
    recorded = [replay(file.parent) for file in sorted(RECORDED.rglob("plan.json"))]
    cards = [_lab("accounting").scorecard(published("communication_accounting"))]
    cards += [_lab(run.plan.lab).scorecard(run) for run in recorded]
    recorded = _joined(cards)
    missing = [one for one in map(_expected, _labs()) if len(one)]
    known = recorded.groupby("lab")["target"].agg(set).to_dict()
    missing = [one[~one["target"].isin(known.get(one["lab"].iloc[0], set()))] for one in missing]
    return _joined([recorded, *missing])


def _expected(lab: str) -> pd.DataFrame:
    """Return the targets that the lab names in EXPECTED, none of them measured."""
    return card(lab, getattr(_lab(lab), "EXPECTED", ())).assign(met=NOT_RECORDED)


def _labs() -> list[str]:
    return sorted(path.parent.name for path in LABS.glob("*/__init__.py"))


def _lab(name: str):
    return importlib.import_module(f"labkit.labs.{name}")


def _joined(cards: Iterable[pd.DataFrame]) -> pd.DataFrame:
    nonempty_cards = [one for one in cards if len(one)]
    return pd.concat(nonempty_cards, ignore_index=True)[COLUMNS] if nonempty_cards else pd.DataFrame(columns=COLUMNS)


if __name__ == "__main__":
    scorecard().to_csv(sys.stdout, index=False)
