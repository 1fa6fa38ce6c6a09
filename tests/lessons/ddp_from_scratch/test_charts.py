"""Every chart of lab 10 on representative tables: it draws, says units and source, and no text hides another."""

import pytest
from figures import checked
from made_ddp_from_scratch import buckets_run, implementations_run
from matplotlib.figure import Figure

from labkit.course.predict import Prediction
from labkit.tables.published import published
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
PRINTED = published("ddp_from_scratch")


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        "full": implementations_run(folder / "full"),
        "small": implementations_run(folder / "small", bucket_mb=0.25, **SMALL),
        "failed": implementations_run(folder / "failed", failed=("flat", "ddp")),
        "faster": implementations_run(folder / "faster", step_ms={"bucketed": 89.0}),
        "few": implementations_run(folder / "few", strategies=("naive", "bucketed")),
    }


@pytest.mark.parametrize("name", ["full", "small", "failed", "faster", "few"])
def test_steps_chart(runs, name):
    table = ddp.implementations(runs[name])
    figure = ddp.steps_chart(table)
    if name in ("full", "failed"):  # the others' bars and words are drawn below, in half the width
        checked(figure)
    bars = figure.axes[0].patches
    assert len(bars) == 2 * len(table)
    ends = [bar.get_x() + bar.get_width() for bar in bars[len(table) :]]
    assert ends == pytest.approx(table["step_ms"].tolist(), nan_ok=True), "compute and what sending adds are the step"
    assert all(bar.get_width() >= 0 for bar in bars if bar.get_width() == bar.get_width())
    assert ("torch's DDP" in labels(figure)) == (name not in ("few", "failed"))
    assert any("out of memory" in text.get_text() for text in figure.axes[0].texts) == (name == "failed")
    two = checked(ddp.steps_chart(table, ddp.implementations(runs["full"])))
    assert two.axes[1].get_title(loc="left").endswith("4 × 128 positions"), "runs of two batches are named apart"


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps")
    return {
        "full": buckets_run(folder / "full"),
        "small": buckets_run(folder / "small", buckets_mb=(0.02, 0.1, 0.5, 2), bucket_mb=0.25, **SMALL),
        "calls": buckets_run(folder / "calls", line=Overhead(0.096, 2e-5, float("inf"))),
        "two": buckets_run(folder / "two", buckets_mb=(10, 100)),
        "alone": buckets_run(folder / "alone", others=("none",)),
    }


@pytest.mark.parametrize("name", ["full", "small", "calls", "two", "alone"])
def test_buckets_chart(sweeps, name):
    run = sweeps[name]
    made = [read(run) for read in (ddp.buckets, ddp.overhead, ddp.curve)]
    figure = ddp.buckets_chart(*([one] for one in made))
    if name in ("full", "two"):  # the others are drawn below, in half the width
        checked(figure)
    assert ("its best size" in labels(figure)) == (name in ("full", "small", "alone"))
    assert ("torch's DDP" in labels(figure)) == (name != "alone")
    assert figure.axes[0].get_ylim()[0] == 0
    recorded = [read(sweeps["full"]) for read in (ddp.buckets, ddp.overhead, ddp.curve)]
    pairs = list(zip(made, recorded, strict=True))
    both = checked(ddp.buckets_chart(*pairs, guess=Prediction("?", "MiB", 30.0)))
    assert len(both.axes) == 2 and "your prediction" in labels(both)
    assert all(
        len(ax.texts) == (table["strategy"] == "bucketed").sum() for ax, table in zip(both.axes, pairs[0], strict=True)
    )
    assert "your prediction" not in labels(ddp.buckets_chart(*pairs, guess=Prediction("?", "MiB")))


@pytest.mark.parametrize("buckets_mb", [(20, 60, 160, 400, 800), (800,), (1, 2)])
def test_flights_chart(buckets_mb):
    knobs = {"whole_mb": 800, "parameters": 40, "backward_ms": 40, "overhead_ms": 0.3}
    figure = checked(ddp.flights_chart(buckets_mb, gb_per_s=50, **knobs))
    (ax,) = figure.axes
    assert len(ax.collections) == 3 * len(buckets_mb), "backward, calls and the link"
    assert [text.get_text().strip().startswith("+") for text in ax.texts] == [True] * len(buckets_mb)
    assert ax.lines[0].get_xdata()[0] == 40
    checked(ddp.flights_chart(buckets_mb, gb_per_s=5, **knobs))


def test_published_chart(runs):
    figure = checked(ddp.published_chart(PRINTED, ddp.implementations(runs["full"])))
    (ax,) = figure.axes
    printed, ours = (line.get_xdata() for line in ax.lines)
    assert len(printed) == len(PRINTED)
    assert sum(one == one for one in ours) == 3, "naive, flat and overlapped: our buckets have another size"
    assert [text.get_text() for text in ax.texts].count("out of memory") == 1
    (band,) = ax.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((776, 846))
    assert ax.get_xlim()[0] == 0
