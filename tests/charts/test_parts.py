"""Which run is drawn in which panel."""

import pandas as pd
import pytest

from labkit.charts import canvas
from labkit.charts.parts import distinct, run_panels
from labkit.provenance import of_source


def run_table(source: str, **facts) -> pd.DataFrame:
    return of_source(pd.DataFrame({"ms": [1.0]}), source, **({"small": False, "ranks": 4, "bytes": 8} | facts))


RECORDED = run_table("recorded on 4 × NVIDIA H200, 2026-11-01")


def drawn(panels):
    return [[(layer.label, layer.color, layer.behind) for layer in panel] for panel in panels]


def test_this_run_stands_first_and_the_recorded_one_beside_it():
    here = run_table("measured here, 2 CPU processes, 2026-11-25, small size", small=True, ranks=2)
    assert drawn(run_panels(here, RECORDED, "bytes")) == [
        [("this run", canvas.MEASURED, False)],
        [("recorded run", canvas.RECORDED, False)],
    ]


@pytest.mark.parametrize(("facts", "panels"), [({}, 1), ({"bytes": 9}, 2), ({"ranks": 2}, 2)])
def test_runs_of_one_size_share_a_panel(facts, panels):
    shown = run_panels(run_table("measured here, 4 × NVIDIA H200, 2026-11-25", **facts), RECORDED, "bytes")
    assert len(shown) == panels
    if panels == 1:
        assert drawn(shown) == [[("recorded run", canvas.RECORDED, True), ("this run", canvas.MEASURED, False)]]


def test_a_lesson_without_a_recorded_run_draws_its_own():
    assert drawn(run_panels(RECORDED, None)) == [[("this run", canvas.MEASURED, False)]]


@pytest.mark.parametrize("here", [None, RECORDED])
def test_without_a_run_here_the_recorded_one_stands_alone(here):
    assert drawn(run_panels(here, RECORDED)) == [[("recorded run", canvas.RECORDED, False)]]


def test_each_run_is_kept_once_in_order():
    here, replayed = run_table("measured here"), run_table(RECORDED.attrs["source"])
    lines = run_table("theory")
    pairs = (here, lines), (RECORDED, lines), (replayed, lines)
    for entries in ((None, here, RECORDED, None, replayed), pairs, [[table, lines] for table, _ in pairs]):
        given = [entry for entry in entries if entry is not None]
        assert [id(entry) for entry in distinct(entries)] == [id(entry) for entry in given[:2]]
    assert distinct([None]) == ()


def test_tables_of_one_run_stay_where_a_named_fact_differs():
    bucketed, naive = (run_table("recorded", setting=name) for name in ("bucketed", "naive"))
    assert [table is bucketed for table in distinct((bucketed, naive, bucketed), "setting")] == [True, False]
    assert len(distinct((bucketed, naive, bucketed))) == 1
