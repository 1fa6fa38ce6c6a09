"""Lab 05's charts, of the recorded runs and of partly missing ones: they draw, and show the figures of their tables."""

import figures
import numpy as np
import pytest
from figures import checked
from made import CPU, write_run
from made_sharding import full, made, step_of

from labkit.engine.recordings import replay
from labkit.tables.published import published
from lessons import sharding

PUBLISHED = 32582  # tokens/s


@pytest.fixture(autouse=True)
def memory_has_units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "GiB", "MiB"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The recorded runs by their plans, a small run of strategies and one of batches, and runs that lack a part."""
    folder = tmp_path_factory.mktemp("charts")

    def small(plan):
        steps = [
            (0, vars(point) | {"entry": "step", "iteration": i, "step_ms": 10.0 + point.ranks + point.micro_batch + i})
            for point in plan.points()
            for i in range(3)
        ]
        return write_run(folder / plan.name, plan, CPU, steps)

    strategies, ladder = full(sharding.Strategies, large=48), full(sharding.Ladder, gpus=1)
    return {name: replay(path) for name, path in sharding.RECORDED.items()} | {
        "few strategies": small(sharding.Strategies.small(device="cpu", gpus=2)),
        "few batches": small(sharding.Batches.small(device="cpu", gpus=1)),
        "no ddp": made(
            folder / "no ddp", strategies, step_of, failed=lambda p: (p.strategy, p.load) == ("ddp", "large")
        ),
        "short": made(folder / "short", ladder, lambda point: 300.0, failed=lambda point: point.point > 5),
    }


@pytest.fixture(scope="module")
def projected():
    """Four GPUs' projection, beside what two of them measured."""
    of_four, of_two = ("links", "strategies"), sharding.RECORDED
    nearest = [replay(sharding.RECORDED.nearest(name, gpus=8)) for name in of_four]
    return sharding.projection(*nearest), sharding.projection(*(replay(of_two[name]) for name in of_four))


def labels(figure) -> set[str]:
    return {text.get_text() for text in figure.legends[0].get_texts()}


@pytest.mark.parametrize("names", [("few strategies", "strategies"), ("no ddp",)])
def test_strategies_chart(runs, names):
    pairs = [(sharding.strategies(runs[name]), sharding.memory(runs[name])) for name in names]
    figure = checked(sharding.strategies_chart(*pairs))
    assert {"large batch", "the report's batch, shared out"} <= labels(figure)
    for (rates, held), left, right in zip(pairs, figure.axes[::2], figure.axes[1::2], strict=True):
        rows = rates[rates["ranks"].isin([1, rates["ranks"].max()])]
        bars = [patch for patch in left.patches if patch.get_width() > 0]
        assert sorted(bar.get_width() for bar in bars) == pytest.approx(sorted(100 * rows["efficiency"].dropna()))
        assert len(left.texts) == len(bars), "each bar that was measured has its share"
        upper = {bar.get_y() for bar in bars if bar.get_facecolor()[3] == 1}
        lower = {bar.get_y() for bar in bars} - upper
        assert max(upper) < max(lower) and not upper & lower, "the large batch stands above"
        drawn = sum(patch.get_width() for patch in right.patches if patch.get_width() > 0)
        shown = held[(held["load"] == "large") & held["ranks"].isin([1, held["ranks"].max()])]
        scale = 1024 if shown["predicted"].max() > 2048 else 1
        assert drawn == pytest.approx(shown["predicted"].sum() / scale), "the items add up to the ledger"
        assert left.get_ylim()[0] > left.get_ylim()[1], "one GPU alone is on top"


def test_batches_chart(runs):
    tables = [sharding.batches(runs[name]) for name in ("few batches", "batches")]
    figure = checked(sharding.batches_chart(*tables, published("gpt2_batch_size")))
    for table, memory, unit, scale in zip(tables, figure.axes[1::2], ("MiB", "GiB"), (1, 1024), strict=True):
        assert memory.get_ylabel() == f"{unit} on one GPU"
        lines = {line.get_marker(): list(line.get_ydata()) for line in memory.lines}
        assert lines["|"] == pytest.approx(table["predicted_mib"] / scale)
        unfit = table.loc[table["tokens_per_s"].isna(), "micro_batch"].tolist()
        assert [line.get_xdata()[0] for line in memory.lines if line.get_marker() == "X"] == unfit
        assert [text.get_text().strip(": ") for text in memory.texts] == ["out of memory"] * len(unfit)
    assert unfit, "the recorded run has a batch that does not fit"
    assert "one CPU process" in figure.axes[0].get_title(loc="left") and "published (H100)" in labels(figure)
    triangles = [[len(line.get_xdata()) for line in ax.lines if line.get_marker() == "^"] for ax in figure.axes]
    assert triangles == [[], [], [5], []], "published rates stand beside the recorded ones; one did not fit"
    for ax in figure.axes:
        assert ax.get_ylim()[0] == 0
        assert all(np.nanmax(line.get_ydata(), initial=0) <= ax.get_ylim()[1] for line in ax.lines), (
            "a point is cut off"
        )
    assert "published (H100)" not in labels(checked(sharding.batches_chart(None, tables[1])))


@pytest.mark.parametrize(("names", "guess"), [(("short", "ladder"), None), (("ladder",), 90_000.0)])
def test_waterfall_chart(runs, names, guess):
    tables = [sharding.ladder(runs[name]) for name in names]
    figure = checked(sharding.waterfall_chart(*tables, published=PUBLISHED, guess=guess))
    for ax, table in zip(figure.axes, tables, strict=True):
        rates = table["tokens_per_s"].dropna()
        ends = [patch.get_x() + patch.get_width() for patch in ax.patches]
        assert ends == pytest.approx(rates), "each bar ends at its rung's rate"
        assert sum("out of memory" in text.get_text() for text in ax.texts) == len(table) - len(rates)
    assert ("your prediction" in labels(figure)) == bool(guess)
    assert {"published", "faster", "slower", "within noise"} <= labels(figure), "every line and colour is named"


def test_breakdown_chart(runs):
    table = sharding.profile(runs["profiles"])
    (ax,) = checked(sharding.breakdown_chart(table)).axes
    ends = [patch.get_x() + patch.get_width() for patch in ax.patches[-len(table) :]]
    assert ends == pytest.approx(table["window_ms"].to_list()), "the bars fill the step"
    assert [("hidden" in text.get_text()) for text in ax.texts] == table["overlap"].notna().to_list()


def test_trace_chart(runs):
    spans = [sharding.trace_spans(runs["profiles"], name) for name in ("ddp", "fsdp_grad", "fsdp_full")]
    figure = checked(sharding.trace_chart(spans[2]))
    assert len(figure.axes[0].get_yticks()) == 2, "every rank of one strategy"
    figure = checked(sharding.trace_chart(*spans))
    assert [len(ax.get_yticks()) for ax in figure.axes] == [1, 1, 1], "one rank of each"
    assert {"compute", "all-reduce", "all-gather", "reduce-scatter"} <= labels(figure)
    figure = checked(sharding.trace_chart(*spans[1:], own_axes=True))
    assert [len(ax.get_yticks()) for ax in figure.axes] == [2, 2], "every rank of both"


def test_memory_chart(runs):
    none, pair = (
        (sharding.memory_timeline(run), sharding.segments(run)) for run in (runs["few batches"], runs["timeline"])
    )
    figure = checked(sharding.memory_chart(none, pair))
    left, right = figure.axes  # a run without GPU memory is left out
    assert [text.get_text() for text in left.texts][:2] == ["forward", "backward"]
    assert labels(figure) >= {"parameters and states", "gradients", "activations", "reserved", "in use"}
    assert f"{pair[0]['allocated_mib'].max() / 1024:.1f} GiB" in left.get_title(loc="left")
    assert "not in use" in right.get_title(loc="left")
    hidden = int(pair[1]["segments"].sum()) - (pair[1]["segments"] == 1).sum()
    assert (f"{hidden} smaller" in right.get_xlabel()) == (hidden > 0)
    with pytest.raises(ValueError, match="record of the GPU's memory"):
        sharding.memory_chart(none)


def test_projection_chart(projected):
    of_four, of_two = projected
    figure = checked(sharding.projection_chart(of_four, of_two, published("gpt2_projection")))
    assert len(figure.axes) == of_four["strategy"].nunique()
    alone = {"projected", "… if α grows", "recorded run"}
    assert labels(figure) == {*alone, "projected here", "this run", "published"}
    dots = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    ddp = of_two[(of_two["strategy"] == "ddp") & of_two["error"].notna()]
    assert dots["this run"] == pytest.approx(100 * ddp["efficiency"] / (1 + ddp["error"]))
    assert labels(checked(sharding.projection_chart(of_four))) == alone
