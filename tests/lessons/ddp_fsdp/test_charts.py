"""Every chart of lab 04 on representative tables: it draws, says units and source, and no text hides another."""

import pandas as pd
import pytest
from figures import apart
from made_ddp_fsdp import knobs_run, strategies_run, zero_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from labkit.course.predict import Prediction
from lessons import ddp_fsdp

UNITS = ("GiB", "MiB", "/second", "%")


def drawn(figure: Figure, axes: int) -> Figure:
    """Give the figure back after the checks that hold for every chart of this lab."""
    FigureCanvasAgg(figure).draw()
    assert figure.get_supxlabel()
    assert len(figure.axes) == axes
    for ax in figure.axes:
        assert ax.get_title(loc="left")
        assert ax.has_data() or ax.texts
        assert any(unit in ax.get_xlabel() + ax.get_ylabel() for unit in UNITS)
    apart(figure)
    return figure


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = {"device": "cpu", "gpus": 2, "size": "small", "batches": (16, 8)}
    small |= {"layers": 4, "hidden": 128, "heads": 2, "vocabulary": 1000, "sequence": 64}
    return {
        "full": strategies_run(folder / "full"),
        "small": strategies_run(folder / "small", **small),
        "one": strategies_run(folder / "one", strategies=("ddp",)),
        "failed": strategies_run(folder / "failed", failed=("fsdp_root",)),
        "eight": strategies_run(folder / "eight", gpus=8, batches=(64,)),
    }


@pytest.mark.parametrize("name", ["full", "small", "one", "failed", "eight"])
def test_ledger_chart(runs, name):
    table = ddp_fsdp.memory(runs[name])
    rows = table["strategy"].nunique()
    figure = ddp_fsdp.ledger_chart(table)
    if name in ("full", "failed"):  # the others are drawn below, in half the width
        drawn(figure, 1)
    (ax,) = figure.axes
    assert len(ax.patches) == 6 * rows
    assert ("measured peak" in labels(figure)) == (name != "small")
    ends = [sum(bar.get_width() for bar in ax.patches[row::rows]) for row in range(rows)]
    scale = 1024 if "GiB" in ax.get_xlabel() else 1
    shown = table[table["batch"] == table["batch"].max()]["predicted"] / scale
    assert ends == pytest.approx(shown.tolist())
    guess = Prediction("?", "GiB", 0.03 if name == "small" else 4.0)
    both = drawn(ddp_fsdp.ledger_chart(table, ddp_fsdp.memory(runs["full"]), guess=guess), 2)
    assert "your prediction" in labels(both)
    assert not ddp_fsdp.ledger_chart(table, guess=Prediction("?", "GiB")).axes[0].lines


def test_a_guess_stands_where_its_number_is(runs):
    for name, place in (("full", 4.0), ("small", 4096.0)):
        (ax,) = ddp_fsdp.ledger_chart(ddp_fsdp.memory(runs[name]), guess=4.0).axes
        assert ax.lines[0].get_xdata()[0] == place


def test_theory_has_a_ledger_chart():
    figure = drawn(ddp_fsdp.ledger_chart(ddp_fsdp.holdings(ranks=4)), 1)
    assert figure.axes[0].get_title(loc="left") == "Theory"


@pytest.mark.parametrize("name", ["full", "small", "one", "failed", "eight"])
def test_strategies_chart(runs, name):
    table = ddp_fsdp.throughput(runs[name])
    if name in ("full", "failed"):  # the others are drawn below, in half the width
        drawn(ddp_fsdp.strategies_chart(table), 1)
    printed = ddp_fsdp.printed_runs()
    figure = drawn(ddp_fsdp.strategies_chart(table, ddp_fsdp.throughput(runs["full"]), published=printed), 2)
    dots = [dots for dots in figure.axes[1].collections if isinstance(dots, PathCollection)]
    assert sum(len(one.get_offsets()) for one in dots) == 3 * 2, "DDP and full FSDP of three report and batch pairs"
    assert len({place[0] for one in dots for place in one.get_offsets()}) == 4, "each mark on its own bar"
    assert "course report on 4 × H100: 4 GPUs" in labels(figure)


@pytest.mark.parametrize("name", ["full", "small", "failed", "eight"])
def test_differences_chart(runs, name):
    table = ddp_fsdp.differences(ddp_fsdp.throughput(runs[name]))
    if name in ("full", "failed"):  # the others are drawn below, in half the width
        drawn(ddp_fsdp.differences_chart(table), 1)
    printed = ddp_fsdp.printed_differences()
    full = ddp_fsdp.differences(ddp_fsdp.throughput(runs["full"]))
    figure = drawn(ddp_fsdp.differences_chart(table, full, printed=printed), 2)
    rows = [len(ax.get_yticklabels()) for ax in figure.axes]
    assert rows == [len(table), len(full) + len(printed)], "what was launched stands beside what was recorded"
    assert {"measured here", "published", "hollow: within noise"} <= set(labels(figure))
    drawn_colors = {to_hex(line.get_color()) for ax in figure.axes for line in ax.lines if len(line.get_xdata()) == 1}
    filled = {
        to_hex(handle.get_color())
        for legend in figure.legends
        for handle in legend.legend_handles
        if to_hex(handle.get_markerfacecolor()) == to_hex(handle.get_color())
    }
    assert drawn_colors == filled, "each dot's colour is in the legend, and no other"


@pytest.mark.parametrize("failed", [(), ("TF32",), ("float32, unfused AdamW",), ("bfloat16 autocast", "torch.compile")])
def test_waterfall_chart(tmp_path, failed):
    table = ddp_fsdp.ladder(knobs_run(tmp_path / "run", failed=failed))
    figure = drawn(ddp_fsdp.waterfall_chart(table), 1)
    assert len(figure.axes[0].patches) == 5 - len(failed)
    assert sum("out of memory" in text.get_text() for text in figure.axes[0].texts) == len(failed)
    assert not any("no value" in text.get_text() for text in figure.axes[0].texts)
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]
    assert ends == pytest.approx(table["samples_per_s"].dropna().tolist())
    starts = [bar.get_x() for bar in figure.axes[0].patches]
    assert starts == pytest.approx([0, *ends[:-1]]), "each begins where the last that ran has ended"
    two = ddp_fsdp.ladder(knobs_run(tmp_path / "two", (30, 31), steps=table["knob"].tolist()[:2], size="small"))
    figure = drawn(ddp_fsdp.waterfall_chart(two, table, published=415.0, guess=Prediction("?", "/s", 3000.0)), 2)
    assert labels(figure)[:2] == ["published", "your prediction"]
    assert set(labels(figure)) >= {"faster", "slower", "within noise"}, "every colour is named"
    assert figure.axes[1].get_xlim()[1] > 3000


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_zero_chart(tmp_path, device):
    table = ddp_fsdp.zero(zero_run(tmp_path / "run", device=device))
    if device == "cuda":
        drawn(ddp_fsdp.zero_chart(table), 3)
    else:
        assert table["peak_mib"].isna().all()
        FigureCanvasAgg(ddp_fsdp.zero_chart(table)).draw()
    one = table[table["strategy"] == "ddp"]
    assert isinstance(one, pd.DataFrame)
    FigureCanvasAgg(ddp_fsdp.zero_chart(one)).draw()


def test_per_sample_chart():
    sizes = {"formula_mb": [305.0, 315, 456, 655], "peak_mb": [310.0, float("nan"), 470, 650]}
    knobs = {"attention": ["fused", "fused", "plain", "plain"], "dropout": [0.0, 0.1, 0.0, 0.1]}
    made = pd.DataFrame(knobs | sizes)
    made.attrs = {"source": "recorded on 2 × NVIDIA H200", "small": False}
    figure = ddp_fsdp.per_sample_chart(made, made, printed_mb={"a report": 575.0, "another report": 570.0})
    FigureCanvasAgg(figure).draw()
    apart(figure)
    assert {"a report", "another report", "measured peak", "activations by formula"} <= set(labels(figure))
    assert all(ax.get_xlim()[0] == 0 for ax in figure.axes) and figure.axes[1].get_xlim()[1] > 655
