"""Every chart of lab 13 on made runs: it draws, names its source, and no text hides another."""

import pytest
from figures import drawn
from made_scaling import accuracy_run, communication_run, epochs_run

from labkit.course.predictions import Prediction
from labkit.tables.published import published
from lessons import scaling
from lessons.scaling.plan import TRAININGS

PERCENT = dict.fromkeys(TRAININGS, 60.0) | {"large": 55.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = {"device": "cpu", "gpus": 2, "training": 256, "batches": (8, 32)}
    return {
        "full": (epochs_run(folder / "e"), communication_run(folder / "c"), accuracy_run(folder / "a", PERCENT)),
        "small": (
            epochs_run(folder / "es", **small),
            communication_run(folder / "cs", **small),
            accuracy_run(folder / "as", PERCENT, device="cpu", gpus=2, seeds=(0,), yours="shard.py"),
        ),
        "one": (
            epochs_run(folder / "e1", gpus=1),
            communication_run(folder / "c1", gpus=1),
            accuracy_run(folder / "a1", PERCENT, gpus=1),
        ),
        "eight": (
            epochs_run(folder / "e8", gpus=8),
            communication_run(folder / "c8", gpus=8),
            accuracy_run(folder / "a8", PERCENT, gpus=8),
        ),
    }


def pair(run):
    table = scaling.scaling(run)
    return table, scaling.laws(table)


@pytest.mark.parametrize("name", ["full", "small", "one", "eight"])
def test_scaling_chart(runs, name):
    if name == "one":  # the others are drawn below, in half the width
        drawn(scaling.scaling_chart(pair(runs[name][0])), 1)
    printed = scaling.published_speedups(published("resnet_speedup"))
    guess = Prediction("?", "%", 90.0)
    pairs = pair(runs[name][0]), pair(runs["full"][0])
    figure = drawn(scaling.scaling_chart(*pairs, published=printed, guess=guess), 2 if name in ("one", "eight") else 1)
    marks = [line for line in figure.axes[-1].lines if line.get_label() == "your prediction"]
    assert marks[0].get_ydata()[0] == pytest.approx(1.8), "90 % of two GPUs"
    named = [
        text.get_text() for text in figure.legends[0].get_texts() if text.get_text().startswith(("weak", "strong"))
    ]
    handles, labels = figure.axes[0].get_legend_handles_labels()
    looks = {
        label: (bars.lines[0].get_color(), bars.lines[0].get_marker())
        for bars, label in zip(handles, labels, strict=True)
        if label in named
    }
    assert len(set(looks.values())) == len(looks) == len(named), "no two series look alike"
    assert [*looks] == sorted(named, key=lambda label: (label < "t", int(label.split()[1]))), "named by law and size"


@pytest.mark.parametrize("name", ["full", "small", "one", "eight"])
def test_other_charts_of_runs(runs, name):
    parts, exchange, accuracy = (
        [table(runs[one][kind]) for one in (name, "full")]
        for kind, table in enumerate((scaling.parts, scaling.exchange, scaling.accuracy))
    )
    panels = 1 if name == "full" else 2
    drawn(scaling.parts_chart(*parts), panels)
    drawn(scaling.ways_chart(*exchange), panels)
    drawn(chart := scaling.accuracy_chart(*accuracy), panels)
    assert not any("`" in label.get_text() for label in chart.axes[0].get_yticklabels()), "a chart knows no Markdown"


def test_charts_without_a_run():
    drawn(scaling.laws_chart(), 2)
    drawn(scaling.published_chart(scaling.published_speedups(published("resnet_speedup"))), 1)
