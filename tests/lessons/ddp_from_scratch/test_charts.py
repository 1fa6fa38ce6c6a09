"""Lab 10's charts, of recorded runs and of runs that lack a part: they draw, and say what is missing."""

import pytest
from figures import checked
from made_ddp_from_scratch import buckets_run, implementations_run
from matplotlib.figure import Figure

from labkit.course.predictions import Prediction
from labkit.engine.recordings import replay
from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.theory import Overhead

SMALL = {
    "device": "cpu",
    "size": "small",
    "hidden": 64,
    "inner": 256,
    "layers": 3,
    "heads": 4,
    "vocabulary": 500,
    "sequence": 32,
}


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.fixture(scope="module")
def recorded():
    return {name: replay(path) for name, path in ddp.RECORDED.items()}


@pytest.mark.parametrize(
    ("knobs", "beside_ddp", "failed"),
    [
        ({"bucket_mb": 0.25, **SMALL}, True, False),
        ({"failed": ("flat", "ddp")}, False, True),
        ({"step_ms": {"bucketed": 89.0}, "strategies": ("none", "naive", "bucketed")}, False, False),
    ],
    ids=["small", "failed", "faster"],
)
def test_steps_chart(recorded, tmp_path, knobs, beside_ddp, failed):
    table = ddp.implementations(implementations_run(tmp_path / "run", **knobs))
    figure = checked(ddp.steps_chart(table, ddp.implementations(recorded["implementations"])))
    shorter = any(bar.get_width() < 0 for bar in figure.axes[0].patches)
    assert shorter == ("bucketed" in knobs.get("step_ms", {})), "a step shorter than computing alone"
    assert any("out of memory" in text.get_text() for text in figure.axes[0].texts) == failed
    assert figure.axes[1].get_title(loc="left").endswith("positions"), "runs of two batches are named apart"
    assert ("torch's DDP" in labels(ddp.steps_chart(table))) == beside_ddp


@pytest.mark.parametrize(
    ("knobs", "best", "beside_ddp"),
    [
        ({"buckets_mb": (0.02, 0.1, 0.5, 2), "bucket_mb": 0.25, **SMALL}, True, True),
        ({"line": Overhead(0.096, 2e-5, float("inf"))}, False, True),
        ({"buckets_mb": (10, 100)}, False, True),
        ({"others": ("none",)}, True, False),
    ],
    ids=["small", "calls alone cost", "two sizes", "without the others"],
)
def test_buckets_chart(recorded, tmp_path, knobs, best, beside_ddp):
    run = buckets_run(tmp_path / "run", **knobs)
    reads = (ddp.buckets, ddp.overhead, ddp.curve)
    alone = ddp.buckets_chart(*([read(run)] for read in reads))
    assert ("its best size" in labels(alone), "torch's DDP" in labels(alone)) == (best, beside_ddp)
    pairs = [[read(run), read(recorded["buckets"])] for read in reads]
    both = checked(ddp.buckets_chart(*pairs, guess=Prediction("?", "MiB", 30.0)))
    assert "your prediction" in labels(both)
    assert "your prediction" not in labels(ddp.buckets_chart(*pairs, guess=Prediction("?", "MiB")))


@pytest.mark.parametrize("buckets_mb", [(20, 60, 160, 400, 800), (1, 2)])
def test_flights_chart(buckets_mb):
    knobs = {"whole_mb": 800, "parameters": 40, "backward_ms": 40, "overhead_ms": 0.3}
    for gb_per_s in (50, 5):
        checked(ddp.flights_chart(buckets_mb, gb_per_s=gb_per_s, **knobs))


def test_profile_charts(recorded):
    spans = [ddp.trace_spans(recorded["profiles"], name) for name in ("naive", "bucketed")]
    checked(ddp.trace_chart(*spans, names=ddp.NAMES, own_axes=True))
    checked(ddp.breakdown_chart(ddp.profile(recorded["profiles"]), names=ddp.NAMES))
