"""Measures: one declaration gives the card's key figure, the scorecard's goal and, with no run, a goal not recorded."""

import csv
import importlib
import math

import pytest
from made import broadcast_run, small_broadcast

from labkit.card.readings import key_figures, readings
from labkit.repository import LESSONS
from labkit.tables import measures
from labkit.tables.goals import NOT_RECORDED, OPEN, is_met, scorecard_of
from labkit.tables.measures import CODE, GPU, HIGHER, HOST, LOWER, Measure, Measured, measures_of, ratio


def figure(value: float, spread: float = 0.0) -> Measured:
    return Measured(value, value - spread, value + spread, 7, "4 GPUs", 100.0)


def made(**fields) -> Measure:
    given = {"name": "time", "unit": "×", "plan": "sweep", "measured": lambda run: figure(1.04, 0.02), "better": LOWER}
    return Measure(**(given | {"comparison": "≤", "goal": 1.05} | fields))


def test_a_goal_inside_the_spread_is_open():
    assert is_met(made(), figure(1.04, 0.02)) == OPEN
    assert is_met(made(goal=1.07), figure(1.04, 0.02)) is True
    assert is_met(made(goal=1.01), figure(1.04, 0.02)) is False


def test_what_no_run_shows_is_not_recorded():
    assert is_met(made(), None) == NOT_RECORDED


def test_a_measure_says_what_it_depends_on():
    assert made(depends_on=HOST).by_host and not made().by_host


def test_a_ratio_has_the_spreads_of_both():
    quotient = ratio(figure(20.0, 1.0), figure(10.0, 1.0))
    assert (quotient.value, quotient.low, quotient.high) == pytest.approx((2.0, 1.7, 2.3))
    assert math.isnan(quotient.limit)
    assert ratio(figure(1.0), None) is None
    assert ratio(None, figure(1.0)) is None


def test_the_card_shows_what_is_declared_for_it(tmp_path):
    on_card = [one.name for one in measures_of("broadcast") if one.on_card]
    assert [one.name for one in key_figures()["broadcast"]] == on_card
    assert [one.figure for one in readings(small_broadcast(tmp_path / "small"))] == on_card


def test_goals_are_about_gpus(tmp_path):
    assert scorecard_of(small_broadcast(tmp_path / "small")).empty
    full = scorecard_of(broadcast_run(tmp_path / "full"))
    goals = [one.name for one in measures_of("broadcast") if one.comparison]
    assert full["figure"].tolist() == goals


def test_a_measure_of_so_many_gpus_is_not_shown_by_another_run(tmp_path):
    run = broadcast_run(tmp_path / "four")
    assert made(gpus=4).of(run) == made().of(run) == figure(1.04, 0.02)
    assert made(gpus=2).of(run) is None


def test_processes_that_stand_in_for_gpus_show_no_measure_of_gpus(tmp_path):
    run = small_broadcast(tmp_path / "small")
    assert made(least_gpus=2).of(run) is None and made().of(run) == figure(1.04, 0.02)


@pytest.mark.parametrize("lab", [file.parent.name for file in LESSONS.glob("*/measures.csv")])
def test_each_row_has_its_figure_and_each_figure_a_row(lab):
    with (LESSONS / lab / "measures.csv").open(encoding="utf-8") as lines:
        rows = [row["figure"] for row in csv.DictReader(lines)]
    assert {*rows} == {*importlib.import_module(f"lessons.{lab}.measures").FIGURES}
    for measure in measures_of(lab):
        assert measure.depends_on in (CODE, GPU, HOST) and (measure.better in (HIGHER, LOWER) or measure.comparison)


@pytest.mark.parametrize(("spread", "low", "high"), [(0.5, 1.5, 2.5), (math.nan, 2.0, 2.0)])
def test_a_figure_reaches_as_far_as_its_spread(tmp_path, spread, low, high):
    measured = measures.figure(small_broadcast(tmp_path / "small"), 2.0, spread)
    assert (measured.value, measured.low, measured.high) == (2.0, low, high)
