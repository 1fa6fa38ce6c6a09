"""Every chart and the explorer of lab 06 on representative tables: they draw, and no text hides another."""

import pytest
from figures import checked
from made_benchmarking import launches_run, profiles_run, steps_run

from labkit.course.predictions import Prediction
from labkit.tables.published import published
from lessons import benchmarking as lab
from lessons.benchmarking.explorer import explore, picture, queue
from lessons.benchmarking.theory import NAMES

SMALL = {"device": "cpu", "size": "small"}
KNOBS = {"layers": 12, "kernels_per_layer": 30, "launch_us": 6, "width": 768, "tflops": 400}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {"steps": steps_run, "launches": launches_run, "profiles": profiles_run}
    return {
        (name, size): make(folder / f"{name}-{size}", **knobs)
        for name, make in made.items()
        for size, knobs in (("full", {}), ("small", SMALL))
    }


def both(runs, name, table):
    return [table(runs[name, size]) for size in ("small", "full")]


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_iterations(runs):
    figure = checked(lab.iterations_chart(*both(runs, "steps", lab.iterations)))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["This run, small size", "This run, full size"]


def test_phases_stand_beside_the_published(runs):
    figure = checked(lab.phases_chart(*both(runs, "steps", lab.steps), published=published("transformer_steps")))
    assert "CS336" in figure.get_supxlabel()
    noisy = lab.steps(runs["steps", "full"])
    noisy.loc[noisy["phase"] == "both", "ms"] *= 9
    (ax,) = checked(lab.phases_chart(noisy, published=published("transformer_steps"))).axes
    ends = sorted(max(bar.get_x() + bar.get_width() for bar in bars) for bars in zip(*ax.containers, strict=True))
    step = noisy[(noisy["phase"] == "step") & (noisy["mode"] == "eager")]["ms"]
    assert ends == pytest.approx(sorted(step)), "a bar is as long as its step, also within noise"


def test_modes_show_every_mode_and_the_prediction(runs):
    tables = both(runs, "steps", lab.steps)
    figure = checked(lab.modes_chart(*tables, guess=Prediction("?", "ms", 3.0)))
    assert "your prediction" in labels(figure)
    assert "your prediction" not in labels(checked(lab.modes_chart(*tables)))
    for ax in figure.axes:
        beside = [text.get_text().partition(":")[0] for text in ax.texts]
        assert len(beside) == len(ax.get_yticklabels()) and set(beside) <= set(NAMES.values()), "bars have names"


def test_launches_by_depth_and_width(runs):
    figure = checked(lab.launches_chart(*both(runs, "launches", lab.launches)))
    assert len(figure.axes) == 4
    assert "the GPU's work (CUDA graph)" in labels(figure)
    assert "the GPU's work (CUDA graph)" not in labels(lab.launches_chart(lab.launches(runs["launches", "small"])))


def test_profiles(runs):
    checked(lab.families_chart(*both(runs, "profiles", lab.families)))
    figure = checked(lab.roofline_chart(*both(runs, "profiles", lab.roofline)))
    (ax,) = figure.axes  # a run without roofs has nothing to say beside one that has them
    assert "4 800 GB/s" in ax.get_title(loc="left")
    alone = checked(lab.roofline_chart(lab.roofline(runs["profiles", "small"])))
    assert "no roof is known" in alone.axes[0].get_title(loc="left")
    figure = checked(
        lab.timeline_chart(*lab.timelines(runs["profiles", "small"]), *lab.timelines(runs["profiles", "full"]))
    )
    lanes = [[tick.get_text() for tick in ax.get_yticklabels()] for ax in figure.axes]
    assert lanes == [["operators"]] * 2 + [["operators", "launches", "kernels"]] * 2


def test_the_explorers_sentence_is_the_queues():
    bound = picture(**KNOBS, graph=False)
    assert "launch-bound" in bound and "360 kernels" in bound
    wide = picture(**KNOBS | {"width": 4096}, graph=False)
    assert "the GPU is the limit" in wide and "launch-bound" not in wide
    assert "one launch started all of them" in picture(**KNOBS, graph=True)
    assert queue(**KNOBS).kernels == 360


def test_the_sliders_draw():
    box = explore()
    columns, shown, *_ = box.children
    sliders = {knob.description: knob for column in columns.children for knob in column.children}
    before = shown.value
    sliders["width"].value = 4096
    assert shown.value != before and "the GPU is the limit" in shown.value
