"""Lab 09's charts on made runs of every kind: they draw, show each number where it belongs, and hide no text."""

import numpy as np
import pandas as pd
import pytest
from figures import checked
from made_collectives import GIB, KIB, made_sweep, made_tests
from matplotlib.colors import to_hex

from labkit.charts import canvas
from labkit.course.predict import Prediction
from labkit.tables.published import published
from lessons import collectives
from lessons.collectives.charts.comparisons import MOVED, chunk_color
from lessons.collectives.charts.sizes import COLORS, factor_bars, named
from lessons.collectives.theory import COLLECTIVES, ring


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        "four": made_sweep(folder / "four", gpus=4, counts=(2, 4)),
        "two": made_sweep(folder / "two", gpus=2),
        "eight": made_sweep(folder / "eight", gpus=8, counts=(2, 4, 8)),
        "small": made_sweep(folder / "small", gpus=2, device="cpu"),
        "bent": made_sweep(folder / "bent", gpus=2, bend=lambda size, took, knobs: took * (2 if size > 2**20 else 1)),
        "unknown": made_sweep(folder / "unknown", gpus=2, name="NVIDIA Unknown"),
        "scattered": made_sweep(folder / "scattered", gpus=2, spread=1.5),
        "failed": made_sweep(folder / "failed", gpus=2, status={"broadcast": "out of memory"}),
    }


@pytest.fixture(scope="module")
def times():
    return collectives.published_times(published("all_reduce"))


KINDS = ["four", "two", "eight", "small", "unknown", "scattered", "failed", "bent"]


def labels(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def line(ax, label):
    """Give x and y of the line or error bar with a label."""
    found = [own for own in (*ax.lines, *ax.containers) if own.get_label() == label]
    return (found[0][0] if isinstance(found[0], tuple) else found[0]).get_xydata()


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
def test_ring_chart(ranks):
    figure = checked(collectives.ring_chart(ring(ranks)), drawing=True)
    panels = [ax for ax in figure.axes if ax.axison]
    assert len(panels) == 2 * ranks - 1
    last = panels[-1]
    cells, frames = last.patches[: ranks**2], last.patches[ranks**2 :]
    assert {to_hex(cell.get_facecolor()) for cell in cells} == {chunk_color(ranks, ranks)}
    assert {to_hex(frame.get_edgecolor()) for frame in frames} == {MOVED.lower()} and len(frames) == ranks
    places = [frame.get_x() + frame.get_width() / 2 for frame in frames]
    assert places == pytest.approx([own.receive for own in ring(ranks)[-1].moves])
    assert {text.get_text() for text in last.texts} == {str(ranks)}
    assert panels[0].get_ylim()[0] > panels[0].get_ylim()[1], "rank 0 is on top"


@pytest.mark.parametrize("name", KINDS)
def test_bandwidth_chart(runs, name):
    table, fits = collectives.bandwidths(runs[name]), collectives.fits(runs[name])
    figure = checked(collectives.bandwidth_chart((table, fits), guess=Prediction("?", "GB/s", 150.0)))
    ranks = table["ranks"].max()
    backends = ["gloo"] if name == "small" else ["NCCL", "gloo"]
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        f"Here: {backend}, {ranks} ranks" for backend in backends
    ]
    assert ("your prediction" in labels(figure)) == (name != "small")
    assert set(COLLECTIVES) <= set(labels(figure))
    rows = table[(table["clock"] == "in flight") & (table["ranks"] == ranks) & (table["collective"] == "all-gather")]
    own = rows[rows["backend"] == backends[0].lower()]
    shown = line(figure.axes[0], "all-gather")
    assert shown == pytest.approx(own[["bytes", "bus_gb_per_s"]].to_numpy(dtype=float))
    limits = [text.get_text() for text in figure.axes[0].texts if "GB/s" in text.get_text()]
    assert len(limits) == {"small": 0, "unknown": 0, "four": 2, "eight": 2}.get(name, 1)


def test_the_knee_parts_the_regions(runs):
    table, fits = collectives.bandwidths(runs["two"]), collectives.fits(runs["two"])
    knee = fits[(fits["backend"] == "nccl") & (fits["collective"] == "all-reduce")]["knee_bytes"].iloc[0]
    for figure in (
        collectives.bandwidth_chart((table, fits)),
        collectives.time_chart((table, collectives.residuals(runs["two"]))),
    ):
        ax = figure.axes[0]
        dotted = [own for own in ax.lines if own.get_linestyle() == ":"]
        assert dotted[0].get_xdata()[0] == pytest.approx(knee)
        assert ax.patches[0].get_extents().transformed(ax.transData.inverted()).x1 == pytest.approx(knee)
        assert [text.get_text() for text in ax.texts][:2] == ["← latency", "bandwidth →"]


def test_two_runs_are_drawn_side_by_side(runs):
    made = [(collectives.bandwidths(run), collectives.fits(run)) for run in (runs["small"], runs["two"])]
    figure = checked(collectives.bandwidth_chart(*made, guess=150.0))
    assert [ax.get_title(loc="left").split(",")[0] for ax in figure.axes] == ["Here: gloo", "Here: NCCL", "Here: gloo"]
    made = [(collectives.bandwidths(run), collectives.residuals(run)) for run in (runs["small"], runs["two"])]
    assert len(checked(collectives.time_chart(*made, guess=12.0)).axes) == 6


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("collective", ["all-reduce", "send/recv"])
def test_time_chart(runs, name, collective):
    table, residuals = collectives.bandwidths(runs[name]), collectives.residuals(runs[name])
    figure = collectives.time_chart((table, residuals), collective=collective, guess=12.0)
    if collective == "all-reduce":  # another collective of the run has the same panels and names
        checked(figure)
    panels = 1 if name == "small" else 2
    assert len(figure.axes) == 2 * panels
    clocks = {"small": 2}.get(name, 3)
    assert len(labels(figure)) == clocks + panels, "clocks, line, and where NCCL was timed the prediction"
    misses = residuals[(residuals["collective"] == collective) & (residuals["ranks"] == table["ranks"].max())]
    shown = figure.axes[panels].lines[0].get_ydata()
    own = misses[misses["backend"] == ("gloo" if name == "small" else "nccl")]["residual"]
    assert shown == pytest.approx(own.to_numpy(), abs=1e-9)
    assert (own.abs().max() > 0.1) == (name == "bent")


def test_the_fitted_line_goes_through_exact_times(runs):
    table, residuals = collectives.bandwidths(runs["two"]), collectives.residuals(runs["two"])
    ax = collectives.time_chart((table, residuals)).axes[0]
    (smooth,) = [own for own in ax.lines if len(own.get_xdata()) == 80]
    own = residuals[(residuals["backend"] == "nccl") & (residuals["collective"] == "all-reduce")]
    assert smooth.get_ydata()[[0, -1]] == pytest.approx(own["median_us"].iloc[[0, -1]].to_numpy(), rel=1e-6)


def test_growth_chart(runs, times):
    here, recorded = (collectives.bandwidths(runs[name]) for name in ("four", "eight"))
    figure = checked(collectives.growth_chart(here, recorded, published=times))
    left, right = figure.axes
    assert line(left, "here, NCCL") == pytest.approx(np.array([[2, 1], [4, 3]]), rel=0.01)
    assert line(right, "recorded, NCCL") == pytest.approx(np.array([[2, 1], [4, 1.5], [8, 1.75]]), rel=0.02)
    assert line(left, "report, NCCL")[-1] == pytest.approx([6, 0.701945 / 0.364509])
    assert line(right, "report, gloo")[-1] == pytest.approx([6, 2.668937 / 1.468517])
    assert len(labels(figure)) == len(set(labels(figure))) == 2 + 2 + 2 + 2
    for name, dashed in (("a ring's latency", False), ("a ring's bandwidth", True)):
        looks = [own.is_dashed() for ax in figure.axes for own in ax.lines if own.get_label() == name]
        assert looks == [dashed, dashed], "a name looks alike in both panels"
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "Smallest: 1 KiB (report: 1 MB)",
        "Largest: 1 GiB (report: 1000 MB)",
    ]


def test_growth_of_two_three_and_four_ranks(tmp_path, times):
    """All seven names find room over the figure, and no mark lies outside the axes, even one far below the first."""

    def outlier(size, took, knobs):
        return took * (0.3 if knobs["ranks"] > 2 and knobs["backend"] == "gloo" and size > KIB else 1)

    own = {"gpus": 4, "counts": (2, 3, 4), "sizes_kib": (1, 1024), "gloo_kib": 1024, "bend": outlier}
    here = collectives.bandwidths(made_sweep(tmp_path / "here", device="cpu", **own))
    recorded = collectives.bandwidths(made_sweep(tmp_path / "recorded", **own))
    figure = checked(collectives.growth_chart(here, recorded, published=times))
    assert len(labels(figure)) == 2 + 1 + 2 + 2
    for ax in figure.axes:
        low, high = ax.get_ylim()
        for drawn in ax.lines:
            values = np.asarray(drawn.get_ydata(), dtype=float)
            assert (values >= low).all() and (values <= high).all(), drawn.get_label()
    assert line(figure.axes[1], "recorded, gloo")[1][1] < 0.5


def test_a_recorded_message_of_another_size_is_named(tmp_path, times):
    own = {"gpus": 4, "counts": (2, 4), "backends": ("nccl",)}
    here, recorded = (
        collectives.bandwidths(made_sweep(tmp_path / name, sizes_kib=sizes, **own))
        for name, sizes in (("here", (1, 1024)), ("recorded", (1, 1048576)))
    )
    figure = checked(collectives.growth_chart(here, recorded, published=times))
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "Smallest: 1 KiB (report: 1 MB)",
        "Largest: 1 MiB\n(NCCL: 1 GiB, report: 1000 MB)",
    ]


def test_one_number_of_ranks_grows_nowhere(runs):
    figure = checked(collectives.growth_chart(collectives.bandwidths(runs["two"])))
    assert labels(figure) == ["a ring's latency", "a ring's bandwidth"]
    assert figure.get_supxlabel() == "measured here, 2 × NVIDIA H200, 2026-11-21"


@pytest.mark.parametrize("name", ["two", "four", "small", "unknown"])
def test_overview_chart(runs, times, name):
    here, recorded = (collectives.bandwidths(runs[which]) for which in ("small", name))
    figure = checked(collectives.overview_chart(here, recorded, times, 20, Prediction("?", "GB/s", 300.0)))
    ax = figure.axes[0]
    assert {"here, gloo", "recorded, gloo", "report, NCCL", "your prediction"} <= set(labels(figure))
    assert ("theory: the links' least" in labels(figure)) == (name in ("two", "four"))
    marks = [own.get_xydata()[0] for own in ax.lines if own.get_marker() == "D" and len(own.get_xdata())]
    assert marks[0] == pytest.approx([KIB, 20]) and marks[1] == pytest.approx([GIB, GIB / 300 / 1e3])
    assert line(ax, "report, NCCL")[0] == pytest.approx([1e6, 364509])
    if name == "two":
        least = line(ax, "theory: the links' least")
        assert least[-1] == pytest.approx([GIB, GIB / (18 * 26.562) / 1e3])
    bare = collectives.overview_chart(here, recorded, times, Prediction("?", "µs"), None)
    assert "your prediction" not in labels(bare)


def test_published_chart(times):
    figure = checked(collectives.published_chart(times, collectives.published_fits(times)))
    (ax,) = figure.axes
    assert len(labels(figure)) == 8
    least = line(ax, "at best, a V100's NVLinks")
    assert least[-1] == pytest.approx([1000, 1 / (6 * 25.781)], rel=1e-3)


@pytest.mark.parametrize("worst", [0.9, 0.99, 1.1])
def test_against_chart(tmp_path, worst):
    def ratio(collective, size):
        return worst if collective == "broadcast" else 1.0

    figure = checked(collectives.against_chart(collectives.against(made_tests(tmp_path / "run", ratio=ratio))))
    (ax,) = figure.axes
    assert line(ax, "broadcast")[:, 1] == pytest.approx([worst] * 3)
    assert ax.get_ylim()[0] < worst < ax.get_ylim()[1]
    assert {"goal", *COLLECTIVES} == set(labels(figure))


def test_whiskers_of_ours_against_nccl_tests_lie_inside_the_axes(tmp_path):
    figure = checked(collectives.against_chart(collectives.against(made_tests(tmp_path / "run", spread=0.08))))
    (ax,) = figure.axes
    ends = [end for bars in ax.collections for segment in bars.get_segments() for _, end in segment]
    assert ends and ax.get_ylim()[0] < min(ends) < 0.95 < 1.02 < max(ends) < ax.get_ylim()[1]


def test_without_nccl_tests_ours_stand_alone(tmp_path):
    for device, status in (("cpu", "not installed"), ("cuda", "not installed"), ("cuda", "failed")):
        run = made_tests(tmp_path / device / status.replace(" ", ""), device=device, status=status, said="why")
        figure = checked(collectives.against_chart(collectives.against(run)))
        assert "goal" not in labels(figure)
        assert "ours alone" in figure.axes[0].get_title(loc="left").lower()


def test_bars_are_a_factor_each_way():
    low, high = factor_bars(pd.Series([10.0]), pd.Series([1.0]))
    assert (10 - low[0], 10 + high[0]) == (5, 20)


def test_names_of_sizes_and_colours():
    sizes = [1024, 16 * 1024, 1024**2, 100 * 1024**2, 1024**3, 1.5 * 1024**2]
    assert [named(size) for size in sizes] == ["1 KiB", "16 KiB", "1 MiB", "100 MiB", "1 GiB", "1.5 MiB"]
    assert len(set(COLORS.values())) == 6 and canvas.PREDICTED not in COLORS.values()
