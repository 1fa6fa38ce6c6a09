"""Measures: one declaration gives the card's key figure, the scorecard's goal and, with no run, a goal not recorded."""

import csv
import importlib
import inspect
import math

import pandas as pd
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
def test_each_row_has_its_figure_and_each_function_a_row(lab):
    module = importlib.import_module(f"lessons.{lab}.measures")
    with (LESSONS / lab / "measures.csv").open(encoding="utf-8") as lines:
        rows = [*csv.DictReader(lines)]
    public = {name for name, value in vars(module).items() if name[0] != "_" and inspect.isfunction(value)}
    own = {name for name in public if vars(module)[name].__module__ == module.__name__}
    assert {row["figure"] for row in rows if not row["table"]} == own - {"card_plans", "soak_plan"}
    assert {row["figure"] for row in rows if row["table"]} <= {*measures.TAKEN}
    assert all(bool(row["table"]) == bool(row["column"]) for row in rows)
    for measure in measures_of(lab):
        assert measure.depends_on in (CODE, GPU, HOST) and (measure.better in (HIGHER, LOWER) or measure.comparison)


@pytest.mark.parametrize(("spread", "low", "high"), [(0.5, 1.5, 2.5), (math.nan, 2.0, 2.0)])
def test_a_figure_reaches_as_far_as_its_spread(tmp_path, spread, low, high):
    measured = measures.figure(small_broadcast(tmp_path / "small"), 2.0, spread)
    assert (measured.value, measured.low, measured.high) == (2.0, low, high)


ROWS = pd.DataFrame(
    {
        "way": ["ours", "ours", "theirs"],
        "ranks": [2, 4, 2],
        "ms": [math.nan, -3.0, 2.0],
        "spread_ms": [0.0, 0.5, 0.1],
        "other_ms": [1.0, 4.0, 9.0],
    }
)


@pytest.mark.parametrize(
    ("take", "column", "knobs", "value"),
    [
        ("first", "ms", {"way": "ours"}, -3.0),
        ("last", "ms", {}, 2.0),
        ("largest", "ms", {}, 2.0),
        ("largest", "ms other_ms", {"way": "ours"}, 4.0),
        ("smallest", "ms", {}, -3.0),
        ("smallest", "ms other_ms", {"way": "ours", "ranks": 2}, 1.0),
        ("farthest", "ms", {}, 3.0),
        ("first", "ms", {"way": "theirs", "ranks": 2}, 2.0),
        ("first", "ms", {"way": "ours", "ranks": 2}, None),
        ("largest", "ms", {"way": "nobody's"}, None),
    ],
)
def test_a_figure_is_taken_of_the_rows_with_its_knobs(tmp_path, take, column, knobs, value):
    shown = measures.figure_of(small_broadcast(tmp_path / "small"), ROWS, column, take=take, **knobs)
    assert (shown and shown.value) == value


def test_the_first_value_has_its_spread_on_the_scale_of_its_unit(tmp_path):
    run = small_broadcast(tmp_path / "small")
    first, largest = (measures.figure_of(run, ROWS, "ms", 100.0, take) for take in ("first", "largest"))
    assert (first.value, first.low, first.high) == (-300.0, -350.0, -250.0)
    assert largest.value == largest.low == largest.high == 200.0


def test_a_row_says_table_column_and_knobs(tmp_path, monkeypatch):
    """Numbers and truth values of knobs are read as such; a unit says how the column's shares are shown."""
    monkeypatch.setattr("lessons.broadcast.tables.methods", lambda run: ROWS.assign(alone=[False, True, False]))
    row = {"figure": "first", "table": "methods", "column": "ms", "knobs": "way=ours; ranks=4; alone=true"}
    row |= {"name": "time", "unit": "%", "plan": "sweep", "goal": "≤ 1", "needs": "1 GPU, no middle size"}
    measure = measures._declared(row, measures._shown("broadcast", row))
    run = broadcast_run(tmp_path / "full")
    assert measure.of(run).value == -300.0
    run.plan._hold({"size": "middle"})
    assert measure.of(run) is None


def test_a_row_without_a_table_names_a_function_and_its_knobs(tmp_path):
    row = {"figure": "rate", "table": "", "column": "", "knobs": "method=pipelined"}
    shown = measures._shown("broadcast", row)
    assert shown.keywords == {"method": "pipelined"} and shown(small_broadcast(tmp_path / "small")).value > 0
