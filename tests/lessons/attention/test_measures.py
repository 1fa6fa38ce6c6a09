"""Lab 08's measures: goals that the recorded runs reach and miss, and a wrong attention that no check catches."""

import pandas as pd

from labkit.engine.run import replay
from labkit.tables.goals import scorecard_of
from lessons import attention


def test_the_scorecard_holds_goals_met_and_missed():
    runs = map(replay, attention.RECORDED.values())
    card = {row.target: row.met for run in runs for row in scorecard_of(run).itertuples()}
    missed = {"forward + backward, N 16 384, d 64, causal", "launched over SDPA-flash, where it is slowest"}
    assert {name for name, met in card.items() if not met} == missed and len(card) == 9


def test_a_wrong_attention_that_no_check_catches_is_a_miss(monkeypatch):
    trial = replay(attention.RECORDED["trial"])
    right = trial.rows.query("variant == 'right'")
    hidden = pd.concat([right, right.assign(variant="square")])
    monkeypatch.setattr(type(trial), "rows", property(lambda _: hidden))
    assert scorecard_of(trial)["met"].to_list() == [False]
