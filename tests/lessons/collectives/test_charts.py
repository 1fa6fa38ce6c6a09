"""Lab 09's charts on made runs of every kind: they draw, name what they show, and hide no text."""

import pytest
from figures import checked
from made_collectives import made_sweep
from matplotlib.colors import to_hex

from labkit.course.predictions import Prediction
from labkit.tables.published import published
from labkit.theory.sizes import GIB
from lessons import collectives
from lessons.collectives.charts import MOVED, chunk_color
from lessons.collectives.theory import ring

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


@pytest.mark.parametrize("name", KINDS)
def test_the_recorded_run_stands_beside_this_one(tables, name):
    both = tables["small"], recorded(tables[name])
    shown = ["This run: gloo, 4 CPU processes"]
    if name == "small":
        shown = ["This run, the recorded one behind: gloo, 4 CPU processes"]
    ends = {"four": "4 GPUs", "eight": "8 GPUs", "two": "2 GPUs"}
    figure = checked(collectives.times_chart(*both, guess=12.0))
    assert titles(figure) == shown + [f"Recorded run: NCCL and gloo, {ends[name]}" for _ in shown if name in ends]
    assert "your prediction" in labels(figure)

    figure = checked(collectives.bandwidth_chart(*both, guess=GUESS))
    assert titles(figure) == shown + [f"Recorded run: NCCL, {ends[name]}" for _ in shown if name in ends]
    assert ("your prediction" in labels(figure)) == (name in ends), "nobody else has a message of 1 GiB"
    written = [text.get_text() for text in figure.axes[-1].texts]
    assert {"all-reduce", "send/recv"} <= set(written), "each line has its name at its end"
    rates = [text for text in written if "GB/s" in text]
    assert len(rates) == {"four": 2, "eight": 2}.get(name, 0), "a datasheet is known of some"


@pytest.mark.parametrize("name", ["small", "four"])
def test_reports_chart(tables, times, name):
    assert len(labels(checked(collectives.reports_chart(times)))) == 2
    figure = checked(collectives.reports_chart(times, tables[name], recorded(tables["four"])))
    assert len(labels(figure)) == 2 + 2 + 1
    (first,) = (line for line in figure.axes[0].lines if line.get_marker() == "*")
    assert first.get_ydata()[0] == pytest.approx(30 * 10e-3, rel=0.01), "30 calls of two hops of 5 µs"


@pytest.mark.parametrize("ranks", [2, 4])
def test_ring_chart(ranks):
    figure = checked(collectives.ring_chart(ring(ranks)), drawing=True)
    panels = [ax for ax in figure.axes if ax.axison]
    assert len(panels) == 2 * ranks - 1
    cells, frames = panels[-1].patches[: ranks**2], panels[-1].patches[ranks**2 :]
    assert {to_hex(cell.get_facecolor()) for cell in cells} == {chunk_color(ranks, ranks)}
    assert {to_hex(frame.get_edgecolor()) for frame in frames} == {MOVED.lower()} and len(frames) == ranks


def test_a_prediction_of_another_size_is_not_drawn(tables):
    table = recorded(tables["four"])
    small = table[table["bytes"] < GIB]
    small.attrs = table.attrs
    assert "your prediction" not in labels(collectives.bandwidth_chart(None, small, guess=GUESS))


@pytest.mark.parametrize(("factor", "drawn"), [(1.0, True), (0.5, False)])
def test_where_noise_hides_what_the_size_adds_there_is_no_line(tmp_path, factor, drawn):
    bent = {"bend": lambda size, took, knobs: took * (factor if 1024 < size < 2**20 else 1)}
    run = made_sweep(tmp_path / "run", gpus=2, device="cpu", **bent)
    figure = checked(collectives.times_chart(collectives.bandwidths(run), None))
    assert ("α_call + bytes/β, fitted" in labels(figure)) == drawn
    assert bool(figure.axes[0].patches) == drawn
