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
            accuracy_run(folder / "as", PERCENT, device="cpu", gpus=2, seeds=(0,)),
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


def labels(figure):
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def pair(run):
    table = scaling.scaling(run)
    return table, scaling.laws(table)


@pytest.mark.parametrize("name", ["full", "small", "one", "eight"])
def test_scaling_chart(runs, name):
    if name in ("full", "one"):  # the others are drawn below, in half the width
        drawn(scaling.scaling_chart(pair(runs[name][0])), 2)
    printed = scaling.published_speedups(published("resnet_speedup"))
    guess = Prediction("?", "%", 90.0)
    figure = drawn(scaling.scaling_chart(pair(runs[name][0]), pair(runs["full"][0]), published=printed, guess=guess), 4)
    assert {"your prediction", "ideal"} <= labels(figure)
    marks = [line for line in figure.axes[3].lines if line.get_label() == "your prediction"]
    assert marks[0].get_ydata()[0] == pytest.approx(1.8), "90 % of two GPUs"
    colors = {}
    for ax in figure.axes:
        for bars, label in zip(*ax.get_legend_handles_labels(), strict=True):
            if label.startswith("batch"):
                colors.setdefault(label, set()).add(bars.lines[0].get_color())
    assert all(len(of_batch) == 1 for of_batch in colors.values()), "a batch has one colour in all panels"
    assert len(set.union(*colors.values())) == len(colors), "no two batches share a colour"
    triangles = [line for line in figure.axes[3].lines if line.get_marker() == "^"]
    assert set(triangles[0].get_xdata()) == {2, 4}, "one GPU is no speed-up, and no run has fewer than four"


@pytest.mark.parametrize("name", ["full", "small", "one", "eight"])
def test_parts_chart(runs, name):
    epochs, _, _ = runs[name]
    table = scaling.parts(epochs)
    figure = drawn(scaling.parts_chart(table, scaling.parts(runs["full"][0])), 2)
    bars = figure.axes[0].patches[: 7 * len(table)]
    ends = [sum(bar.get_width() for bar in bars[row :: len(table)]) for row in range(len(table))]
    assert ends == pytest.approx([100] * len(table))


@pytest.mark.parametrize("name", ["full", "small", "one", "eight"])
def test_ways_and_accuracy_charts(runs, name):
    table = scaling.exchange(runs[name][1])
    assert labels(drawn(scaling.ways_chart(table, scaling.exchange(runs["full"][1])), 2)) >= {"hooks", "the trace"}
    learnt = scaling.accuracy(runs[name][2])
    figure = drawn(scaling.accuracy_chart(learnt, scaling.accuracy(runs["full"][2])), 2)
    assert labels(figure) == {"a seed", "guessing"}
    dots = sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() == "o")
    assert dots == learnt["seeds"].sum(), "every seed is a dot"


def test_other_charts():
    drawn(scaling.laws_chart(), 2)
    figure = drawn(scaling.published_chart(scaling.published_speedups(published("resnet_speedup"))), 1)
    assert labels(figure) == {"printed", "its own seconds"}
