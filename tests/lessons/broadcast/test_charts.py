"""Lab 02's charts: each draws, says its units and source, and no text hides another or leaves it."""

import pytest
from figures import checked
from made import H200_SECONDS, broadcast_run, gpu_node, small_broadcast

from labkit.charts import canvas
from labkit.engine.recordings import replay
from lessons import broadcast


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps")
    pinned = {key: seconds for key, seconds in H200_SECONDS.items() if key[1] == "pinned"}
    few = {key: seconds for key, seconds in H200_SECONDS.items() if key[2] in (1, 4, 32)}
    return {
        "full": broadcast_run(folder / "full"),
        "recorded": replay(broadcast_run(folder / "recorded").folder),
        "small": small_broadcast(folder / "small"),
        "eight": broadcast_run(folder / "eight", few, gpus=8),
        "unknown": broadcast_run(folder / "unknown", few, node=gpu_node(4, "NVIDIA Unknown")),
        "pinned": broadcast_run(folder / "pinned", pinned),
        "wrong": broadcast_run(folder / "wrong", few, status={("staged", "pinned", 1): "wrong copy on GPU 1"}),
    }


PANELS = [
    ["small", "full"],
    ["full", "recorded"],
    ["eight", "full"],
    ["unknown"],
    ["pinned"],
    ["wrong"],
]


@pytest.mark.parametrize("names", PANELS, ids=" ".join)
def test_methods_chart(sweeps, names):
    tables = [broadcast.methods(sweeps[name]) for name in names]
    figure = checked(broadcast.methods_chart(*tables, guess=30.0))
    assert len(figure.axes) == (2 if names in (["small", "full"], ["eight", "full"]) else 1), "one panel for one size"
    assert all(not ax.patches for ax in figure.axes), "a bar on a log axis means nothing"
    shown, methods = tables[0], {method for table in tables for method in table["method"]}
    missing = [text for text in figure.axes[0].texts if text.get_text() == "not measured"]
    assert len(missing) == len(methods - {*shown["method"]}), "an empty row says why it is empty"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("least time by datasheet" in labels) == (names != ["unknown"])
    assert "your prediction" in labels and ("this run" in labels) == (len(names) == 2)


def test_what_was_run_here_stands_first_and_before_the_recorded_run(sweeps):
    tables = {name: broadcast.methods(sweeps[name]) for name in ("small", "full", "recorded")}
    left, right = broadcast.methods_chart(tables["small"], tables["recorded"]).axes
    assert left.get_title(loc="left") == "This run: 32 MiB to 4 CPU processes"
    assert right.get_title(loc="left") == "Recorded run: 4 GiB to 4 GPUs"
    (both,) = broadcast.methods_chart(tables["full"], tables["recorded"]).axes
    orders = {}
    for container in both.containers:
        orders.setdefault(container[0].get_color(), set()).add(container[0].get_zorder())
    assert max(orders[canvas.RECORDED]) < min(orders[canvas.MEASURED])


@pytest.mark.parametrize("names", PANELS, ids=" ".join)
def test_chunk_curve_and_ablation_chart(sweeps, names):
    tables = [broadcast.methods(sweeps[name]) for name in names]
    curve = checked(broadcast.chunk_curve(*map(broadcast.chunk_sweep, tables)))
    figure = checked(broadcast.ablation_chart(*map(broadcast.ablation, tables)))
    if "small" in names:  # of CPU processes, which teach nothing on links
        tables = tables[1:]
        titles = [[ax.get_title(loc="left") for ax in one.axes] for one in (curve, figure)]
        assert titles == [["Recorded run: 4 GiB to 4 GPUs"]] * 2
    pinned = [text for ax in figure.axes for text in ax.texts if text.get_text().startswith("pinning")]
    gains = [broadcast.ablation(table)["pinning_gain"].gt(0).sum() for table in tables]
    assert len(pinned) == (sum(gains) if len(figure.axes) == 2 else gains[0])


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("full", ["pipelined"]),
        ("full", ["staged", "pipelined", "scatter_all_gather"]),
        ("small", ["pipelined", "scatter_all_gather"]),
        ("eight", ["pipelined", "scatter_all_gather"]),
    ],
)
def test_timeline_chart(sweeps, name, methods):
    tables = [broadcast.timeline(sweeps[name], method) for method in methods]
    figure = checked(broadcast.timeline_chart(*tables))
    assert all(ax.get_title(loc="left").startswith("This run: ") for ax in figure.axes)


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
def test_paths_drawing(gpus):
    checked(broadcast.paths_drawing(gpus), drawing=True)
