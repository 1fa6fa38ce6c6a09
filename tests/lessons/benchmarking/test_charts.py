"""Every chart and the explorer of lab 06 on representative tables: they draw, and no text hides another."""

import pytest
from figures import checked
from made_benchmarking import firsts_run, launches_run, profiles_run, steps_run

from labkit.course.predict import Prediction
from labkit.tables.published import published
from lessons import benchmarking as lab
from lessons.benchmarking.explorer import explore, picture, queue

SMALL = {"device": "cpu", "size": "small"}
KNOBS = {"layers": 12, "kernels_per_layer": 30, "launch_us": 6, "width": 768, "tflops": 400}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {"steps": steps_run, "firsts": firsts_run, "launches": launches_run, "profiles": profiles_run}
    return {
        (name, size): make(folder / f"{name}-{size}", **knobs)
        for name, make in made.items()
        for size, knobs in (("full", {}), ("small", SMALL))
    }


def both(runs, name, table):
    return [table(runs[name, size]) for size in ("small", "full")]


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_iterations_and_first_calls(runs):
    figure = checked(lab.iterations_chart(*both(runs, "steps", lab.iterations)))
    assert labels(figure) == ["small", "medium", "large", "xl", "2.7b"]
    figure = checked(lab.first_calls_chart(*both(runs, "firsts", lab.first_kinds)))
    assert {"loads code", "allocates", "launches", "operators"} <= set(labels(figure))
    checked(lab.first_calls_chart(lab.first_kinds(runs["firsts", "full"])))


def test_phases_stand_beside_the_published(runs):
    figure = checked(lab.phases_chart(*both(runs, "steps", lab.steps), published=published("transformer_steps")))
    assert {"forward", "backward", "optimizer", "least time of its FLOP"} <= set(labels(figure))
    assert "CS336" in figure.get_supxlabel()
    small = checked(lab.phases_chart(lab.steps(runs["steps", "small"]), published=published("transformer_steps")))
    assert "CS336" not in small.get_supxlabel()  # these are other sizes


def test_modes_show_every_mode_and_the_prediction(runs):
    tables = both(runs, "steps", lab.steps)
    figure = checked(lab.modes_chart(*tables, guess=Prediction("?", "ms", 3.0)))
    assert {"eager", "CUDA graph", "compiled", "compiled in a CUDA graph", "your prediction"} <= set(labels(figure))
    assert "your prediction" not in labels(checked(lab.modes_chart(*tables)))
    checked(lab.modes_chart(tables[0], phase="step"))


def test_launches_by_depth_and_width(runs):
    figure = checked(lab.launches_chart(*both(runs, "launches", lab.launches)))
    assert len(figure.axes) == 4
    assert "the GPU's work (CUDA graph)" in labels(figure)
    assert "the GPU's work (CUDA graph)" not in labels(lab.launches_chart(lab.launches(runs["launches", "small"])))


def test_profiles(runs):
    full, small = (runs["profiles", size] for size in ("full", "small"))
    checked(lab.families_chart(lab.families(full)))
    checked(lab.families_chart(lab.families(small)))
    figure = checked(
        lab.roofline_chart(*(lab.roofline(full, model="2.7b", precision=p) for p in ("float32", "autocast")))
    )
    assert "4 800 GB/s" in figure.axes[0].get_title(loc="left")
    checked(lab.roofline_chart(lab.roofline(small, model="small", precision="float32")))
    figure = checked(lab.timeline_chart(*(lab.timeline(full, model=name) for name in ("small", "2.7b"))))
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["operators", "launches", "kernels"]
    figure = checked(lab.timeline_chart(lab.timeline(small, model="small")))
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["operators"]


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
