"""Lab 02's charts: each draws, says its units and source, and no text hides another or leaves it."""

import itertools

import pytest
from figures import checked
from made import H200_SECONDS, broadcast_run, gpu_node, small_broadcast

from labkit.tables.published import published
from lessons import broadcast
from lessons.broadcast.theory import NAMES


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps")
    pinned = {key: seconds for key, seconds in H200_SECONDS.items() if key[1] == "pinned"}
    few = {key: seconds for key, seconds in H200_SECONDS.items() if key[2] in (1, 4, 32)}
    return {
        "full": broadcast_run(folder / "full"),
        "small": small_broadcast(folder / "small"),
        "eight": broadcast_run(folder / "eight", few, gpus=8),
        "unknown": broadcast_run(folder / "unknown", few, node=gpu_node(4, "NVIDIA Unknown")),
        "pinned": broadcast_run(folder / "pinned", pinned),
        "ring": broadcast_run(folder / "ring", few | {("pinned_ring", "pageable", 4): 0.12}),
        "wrong": broadcast_run(folder / "wrong", few, status={("staged", "pinned", 1): "wrong copy on GPU 1"}),
    }


@pytest.mark.parametrize(
    "names", [["small", "full"], ["ring", "full"], ["full"], ["small"], ["eight"], ["unknown"], ["pinned"], ["wrong"]]
)
def test_methods_chart(sweeps, names):
    tables = [broadcast.methods(sweeps[name]) for name in names]
    figure = checked(broadcast.methods_chart(*tables))
    assert figure.axes[0].get_yticklabels()[0].get_text() == "all host links (yardstick)"
    for ax, table, name in zip(figure.axes, tables, names, strict=True):
        assert not ax.patches, "a bar on a log axis means nothing"
        measured = table[table["seconds"].notna()].groupby(["method", "memory"]).ngroups
        assert len(ax.containers) == measured
        assert "ms" in ax.get_xlabel()
        assert ("in place of GPUs" in ax.get_title(loc="left")) == (name == "small")
        rows = {NAMES[method] for method in table["method"]}
        missing = [text for text in ax.texts if text.get_text() == "not measured in this run"]
        assert len(missing) == len(figure.axes[0].get_yticklabels()) - len(rows), "an empty row says why it is empty"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("least time by datasheet" in labels) == (names not in (["small"], ["unknown"]))


@pytest.mark.parametrize("name", ["full", "small", "eight", "pinned"])
def test_chunk_curve(sweeps, name):
    figure = checked(broadcast.chunk_curve(broadcast.chunk_sweep(broadcast.methods(sweeps[name]))))
    assert len(figure.axes) == (1 if name in ("small", "pinned") else 2)
    assert len({ax.get_ylim() for ax in figure.axes}) == 1, "compared panels share their scale"


@pytest.mark.parametrize("name", ["full", "small", "eight", "unknown", "wrong"])
def test_ablation_chart(sweeps, name):
    figure = checked(broadcast.ablation_chart(broadcast.ablation(broadcast.methods(sweeps[name]))))
    assert ("pinning" in figure.axes[0].get_title(loc="left")) == (name != "small")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == (["pageable source"] if name == "small" else ["pageable source", "pinned source"])


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
    for ax, table, method in zip(figure.axes, tables, methods, strict=True):
        assert ("is hidden" in ax.get_title(loc="left")) == (method != "direct")
        assert len(ax.patches) == len(table)
        assert "ms" in figure.axes[-1].get_xlabel()
        assert ax.get_yticklabels()[0].get_text() == "host → 0"
        assert ax.get_ylim()[0] > ax.get_ylim()[1], "the host's lanes are on top"


@pytest.mark.parametrize("guess", [None, 0.05])
@pytest.mark.parametrize("name", ["full", "small", "unknown"])
def test_broadcast_compare_chart(sweeps, name, guess):
    recorded = broadcast.methods(sweeps["full"])
    table = broadcast.compare(broadcast.methods(sweeps[name]), recorded, published("broadcast"), guess)
    figure = checked(broadcast.compare_chart(table))
    hollow = [dots for dots in figure.axes[0].collections if not len(dots.get_facecolors())]
    assert len(hollow) == (1 if name == "small" else 2), "a pageable source is drawn, and drawn hollow"
    places = [tuple(map(tuple, dots.get_offsets())) for dots in figure.axes[0].collections]
    assert len(set(itertools.chain(*places))) == len(list(itertools.chain(*places))), "one mark hides another"


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
def test_paths_drawing(gpus):
    checked(broadcast.paths_drawing(gpus), drawing=True)
