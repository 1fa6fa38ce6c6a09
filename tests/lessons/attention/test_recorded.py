"""The recorded runs of lab 08: what the notebook and the scorecard say of them holds, and the reader's marks stand."""

import pandas as pd
import pytest

from labkit.engine.run import replay
from labkit.tables.measures import scorecard_of
from labkit.tables.published import published
from lessons import attention
from lessons.attention.charts import memory as memory_charts
from lessons.attention.charts import speed as charts
from lessons.attention.tables import memory, speed

PREDICTION = "your prediction"


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in attention.RECORDED.items()}


def test_one_check_flags_the_published_launches_and_our_own_and_passes_what_was_waited_for(runs):
    times = attention.printed_times(published("attention"))
    flagged = times[(times["verdict"] == "impossible")]
    assert set(flagged["phase"]) == {"forward"} and len(flagged) == 32
    ours = memory.plain(runs["plain"])
    assert (ours["unsynchronised_verdict"] == "impossible").sum() > 10
    for phase in ("forward", "backward"):
        assert "impossible" not in set(ours[f"{phase}_verdict"])
    assert "impossible" not in set(speed.race(runs["race"])["verdict"])


def test_ours_is_never_slower_than_sdpa_flash_on_the_gpu_and_launched_from_2048_up(runs):
    table = speed.race(runs["race"])
    ours = table[table["implementation"] == "flash"]
    assert ours[ours["clock"] == "captured"]["versus"].max() < 1
    launched = ours[(ours["clock"] == "launched") & (ours["sequence"] >= 2048)]
    assert launched["versus"].max() < 1 and len(launched) == 30


def test_memory_grows_as_the_formula_says(runs):
    table = memory.held(runs["memory"])
    ours = table[(table["implementation"] == "flash") & (table["status"] == "ok")]
    assert ours["sequence"].max() == 65536
    for moment in ("kept", "held", "backward"):
        assert (ours[f"{moment}_mib"] / ours[f"{moment}_formula_mib"]).sub(1).abs().max() < 0.05


def test_the_scorecard_holds_goals_met_and_missed(runs):
    card = {row.target: row.met for run in runs.values() for row in scorecard_of(run).itertuples()}
    missed = {"forward + backward, N 16 384, d 64, causal", "launched over SDPA-flash, where it is slowest"}
    assert {name for name, met in card.items() if not met} == missed and len(card) == 9


def test_a_wrong_attention_that_no_check_catches_is_a_miss(runs, monkeypatch):
    right = runs["trial"].rows.query("variant == 'right'")
    hidden = pd.concat([right, right.assign(variant="square")])
    monkeypatch.setattr(type(runs["trial"]), "rows", property(lambda _: hidden))
    assert scorecard_of(runs["trial"])["met"].to_list() == [False]


@pytest.mark.parametrize("guess", [2.0, None])
def test_a_prediction_stands_on_the_race(runs, guess):
    ax = charts.race_chart(speed.race(runs["race"]), guess=guess).axes[0]
    marks = [line for line in ax.lines if line.get_label() == PREDICTION]
    assert len(marks) == (guess is not None)
    if guess:  # 1.92 TFLOP in 2 ms
        assert marks[0].get_ydata()[0] == pytest.approx(962, rel=0.01)


@pytest.mark.parametrize("guess", [30000.0, None])
def test_a_prediction_stands_on_the_memory(runs, guess):
    first, last = memory_charts.memory_chart(memory.held(runs["memory"]), guess=guess).axes
    assert any(line.get_label() == PREDICTION for line in first.lines) == (guess is not None)
    assert any(list(line.get_ydata()) == [guess] for line in last.lines) == (guess is not None)
