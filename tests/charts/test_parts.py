"""Which run is drawn in which panel."""

import numpy as np
import pandas as pd
import pytest

from labkit.charts import canvas, parts
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


def test_each_entry_has_a_panel_and_each_value_a_line():
    table = of_source(
        pd.DataFrame({"n": [1, 2, 1, 2], "ms": [4, 3, 2, 1], "by": [*"bbaa"], "at": [8, 8, 9, 9]}), "made"
    )
    figure, shown = parts.panel_each(table.groupby("at", sort=False), sharey=True)
    for ax, (_, rows) in shown:
        parts.lines(
            ax, rows, "n", "ms", "by", {"a": {"color": "red"}, "b": {"color": "blue", "label": "B", "lw": 3}}, lw=1
        )
    assert [value for _, (value, _) in shown] == [8, 9]
    assert [ax for ax, _ in shown] == figure.axes
    lines = [line for ax in figure.axes for line in ax.lines]
    assert [(line.get_label(), line.get_color(), line.get_linewidth()) for line in lines] == [
        ("B", "blue", 3),
        ("a", "red", 1),
    ]
    assert [[*np.asarray(line.get_ydata())] for line in lines] == [[4, 3], [2, 1]]
    assert parts.close(figure, table, None, note="a note · ").get_supxlabel() == "a note · made"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["B", "a"]


def test_lines_have_whiskers_where_a_column_gives_the_spread():
    figure, (ax,) = parts.panels(1)
    parts.lines(
        ax, pd.DataFrame({"n": [1], "ms": [4], "by": "a", "spread": [1]}), "n", "ms", "by", {"a": {}}, spread="spread"
    )
    (whiskers,) = ax.collections
    assert np.array_equal(whiskers.get_paths()[0].vertices, [[1, 3], [1, 5]])
    assert figure.axes == [ax]


@pytest.mark.parametrize(("most", "named"), [(12, "1 2 4 8 1024"), (4, "1 4 1024"), (2, "2 1024"), (1, "1024")])
def test_a_knobs_values_are_named_with_the_largest_among_them(most, named):
    _, (ax,) = parts.panels(1)
    ax.plot([1, 1024], [1, 1])
    parts.knob_axis(ax, [8, 4, 2, 1, 1, 1024], "GPUs", str, most=most, fontsize=8)
    assert " ".join(label.get_text() for label in ax.get_xticklabels()) == named
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_xticklabels()[0].get_fontsize()) == ("log", "GPUs (log)", 8)
    assert not ax.xaxis.get_minorticklocs().size
