"""Lab 09's charts on made runs of every kind: they draw, show each number where it belongs, and hide no text."""

import pytest
from figures import checked
from made_collectives import GIB, made_sweep
from matplotlib.colors import to_hex

from labkit.course.predictions import Prediction
from labkit.tables.published import published
from lessons import collectives
from lessons.collectives.charts import MOVED, chunk_color
from lessons.collectives.theory import COLLECTIVES, ring

GUESS = Prediction("?", "GB/s", 150.0)
FAILED = {"status": {"broadcast": "out of memory"}}
KINDS = {
    "four": {"gpus": 4, "counts": (2, 4)},
    "eight": {"gpus": 8, "counts": (2, 4, 8)},
    "small": {"gpus": 4, "counts": (2, 3, 4), "device": "cpu"},
    "two": {"gpus": 2, "name": "NVIDIA Unknown", "spread": 1.5, **FAILED},
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: collectives.bandwidths(made_sweep(folder / name, **knobs)) for name, knobs in KINDS.items()}


@pytest.fixture(scope="module")
def times():
    return collectives.published_times(published("all_reduce"))


def recorded(table):
    """Give the table as one of a recorded run."""
    copy = table.copy()
    copy.attrs = table.attrs | {"source": "recorded on another node"}
    return copy


def labels(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def titles(figure) -> list[str]:
    return [ax.get_title(loc="left") for ax in figure.axes]


def line(ax, label):
    """Give x and y of the line or error bar with a label."""
    found = [own for own in (*ax.lines, *ax.containers) if own.get_label() == label]
    return (found[0][0] if isinstance(found[0], tuple) else found[0]).get_xydata()


def large(table, collective, backend):
    rows = table[(table["clock"] == "in flight") & (table["ranks"] == table["ranks"].max())]
    return rows[(rows["collective"] == collective) & (rows["backend"] == backend)]


@pytest.mark.parametrize("name", KINDS)
def test_the_recorded_run_stands_beside_this_one(tables, name):
    both = tables["small"], recorded(tables[name])
    shown = ["This run: gloo, 4 CPU processes"]
    if name == "small":
        shown = ["This run, the recorded one behind: gloo, 4 CPU processes"]
    ends = {"four": "4 GPUs", "eight": "8 GPUs", "two": "2 GPUs"}
    figure = checked(collectives.times_chart(*both, guess=12.0))
    assert titles(figure) == shown + [f"Recorded run: NCCL and gloo, {ends[name]}" for _ in shown if name in ends]
    marked = figure.axes[-1]
    own, backend = large(tables[name], "all-reduce", "gloo"), "gloo"
    assert line(marked, f"recorded run, {backend}, calls in flight") == pytest.approx(
        own[["bytes", "median_us"]].to_numpy(dtype=float)
    )
    assert "your prediction" in labels(figure) and "α + bytes/β, fitted" in labels(figure)
    assert ("replayed from a CUDA graph" in labels(figure)) == (name in ends)

    figure = checked(collectives.bandwidth_chart(*both, guess=GUESS))
    assert titles(figure) == shown + [f"Recorded run: NCCL, {ends[name]}" for _ in shown if name in ends]
    assert set(labels(figure)) - {"your prediction"} == set(COLLECTIVES)
    assert ("your prediction" in labels(figure)) == (name in ends), "nobody else has a message of 1 GiB"
    rates = [text.get_text() for text in figure.axes[-1].texts]
    assert len(rates) == {"four": 2, "eight": 2}.get(name, 0), "a datasheet is known of some"
    if name in ends:
        own = large(tables[name], "all-gather", "nccl")[["bytes", "bus_gb_per_s"]]
        assert line(figure.axes[-1], "all-gather") == pytest.approx(own.to_numpy(dtype=float))
        assert figure.axes[-1].get_ylim()[0] == 0


def test_the_knee_parts_the_regions(tables):
    ax = collectives.times_chart(None, recorded(tables["four"])).axes[0]
    knee = large(tables["four"], "all-reduce", "nccl")["knee_bytes"].iloc[0]
    assert ax.patches[0].get_extents().transformed(ax.transData.inverted()).x1 == pytest.approx(knee)
    assert [text.get_text() for text in ax.texts] == ["← latency", "bandwidth →"]


@pytest.mark.parametrize("name", ["small", "four"])
def test_reports_chart(tables, times, name):
    alone = checked(collectives.reports_chart(times))
    assert len(labels(alone)) == 7
    figure = checked(collectives.reports_chart(times, tables[name], recorded(tables["four"])))
    assert len(labels(figure)) == 7 + 2 + (1 if name == "small" else 2)
    printed = times[(times["backend"] == "nccl") & (times["processes"] == 4)]
    assert line(figure.axes[0], "report, NCCL, 4 processes")[:, 1] == pytest.approx(1e3 * printed["seconds"].to_numpy())
    ours = tables["four"].query("ranks == 2 and collective == 'all-reduce' and clock == 'in flight'")
    drawn = line(figure.axes[0], "recorded run, NCCL, 2 ranks")
    assert drawn[:, 1] == pytest.approx(1e-3 * ours[ours["backend"] == "nccl"]["median_us"].to_numpy())


def test_growth_chart(tables, times, tmp_path):
    half = made_sweep(tmp_path / "half", gpus=4, counts=(2, 4), bend=lambda size, took, k: took / k["ranks"] ** 2)
    faster = recorded(collectives.bandwidths(half))
    figure = checked(collectives.growth_chart(tables["small"], faster, tables["eight"], published=times))
    small, large_ax = figure.axes
    assert line(small, "this run, gloo")[:, 1] == pytest.approx([1, 2, 3], rel=0.02), "latency grows with the hops"
    assert line(large_ax, "this run, gloo")[-1, 0] == 4
    lows = line(large_ax, "recorded run, NCCL")[:, 1]
    assert small.get_ylim()[0] < lows.min() < 0.5, "no point lies outside"
    assert "report: 1 MB" in small.get_title(loc="left") and "report: 1000 MB" in large_ax.get_title(loc="left")


def test_a_library_without_two_numbers_of_ranks_does_not_grow(tables, times):
    figure = checked(collectives.growth_chart(tables["two"], published=times))
    assert not [label for label in labels(figure) if label.startswith("this run")]


@pytest.mark.parametrize("ranks", [2, 4])
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
    assert panels[0].get_ylim()[0] > panels[0].get_ylim()[1], "rank 0 is on top"


def test_a_prediction_of_another_size_is_not_drawn(tables):
    table = recorded(tables["four"])
    small = table[table["bytes"] < GIB]
    small.attrs = table.attrs
    assert "your prediction" not in labels(collectives.bandwidth_chart(None, small, guess=GUESS))
