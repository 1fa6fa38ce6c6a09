"""Lab 05's charts of training on full, small and partly missing tables: they draw, have units, and nothing overlaps."""

import figures
import pytest
from figures import checked
from made import CPU, write_run
from made_sharding import full, made, step_of

from labkit.tables.published import published
from lessons import sharding

LARGE, SHARED = "large batch", "the report's batch, shared out"


@pytest.fixture(autouse=True)
def memory_has_units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "GiB", "MiB"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charts")
    small = sharding.Strategies.small(device="cpu", gpus=2)
    steps = [
        (0, vars(point) | {"entry": "step", "iteration": i, "step_ms": 30.0 + point.ranks + i})
        for point in small.points()
        for i in range(3)
    ]
    sizes = sharding.Batches.small(device="cpu", gpus=1)
    few = [
        (0, vars(point) | {"entry": "step", "iteration": i, "step_ms": 10.0 + point.micro_batch + i})
        for point in sizes.points()
        for i in range(3)
    ]
    ladder, batches = full(sharding.Ladder, gpus=1), full(sharding.Batches, gpus=1)
    return {
        "full": made(folder / "full", full(sharding.Strategies, large=48), step_of),
        "four": made(folder / "four", full(sharding.Strategies, gpus=4, large=48), step_of),
        "gone": made(
            folder / "gone",
            full(sharding.Strategies, large=48),
            step_of,
            failed=lambda point: (point.strategy, point.load) == ("ddp", "large"),
        ),
        "small": write_run(folder / "small", small, CPU, steps),
        "batches": made(
            folder / "batches",
            batches,
            lambda point: 20 + 9.0 * point.micro_batch,
            failed=lambda point: point.micro_batch > 64,
        ),
        "few": write_run(folder / "few", sizes, CPU, few),
        "ladder": made(folder / "ladder", ladder, lambda point: 80.0 * (9 - point.point) * point.batch / 8),
        "short": made(folder / "short", ladder, lambda point: 300.0, failed=lambda point: point.point > 5),
    }


@pytest.mark.parametrize("names", [("full",), ("four",), ("gone",), ("small",), ("small", "full"), ("gone", "four")])
def test_strategies_chart(runs, names):
    pairs = [(sharding.strategies(runs[name]), sharding.memory(runs[name])) for name in names]
    figure = checked(sharding.strategies_chart(*pairs))
    assert len(figure.axes) == 2 * len(pairs)
    assert {LARGE, SHARED} <= {text.get_text() for text in figure.legends[0].get_texts()}
    for (rates, held), left, right in zip(pairs, figure.axes[::2], figure.axes[1::2], strict=True):
        rows = rates[rates["ranks"].isin([1, rates["ranks"].max()])]
        wide = sorted(patch.get_width() for patch in left.patches if patch.get_width() > 0)
        assert wide == pytest.approx(sorted(100 * rows["efficiency"].dropna()))
        assert len(left.texts) == rows["efficiency"].notna().sum(), "each bar that was measured has its share"
        drawn = sum(patch.get_width() for patch in right.patches if patch.get_width() > 0)
        shown = held[(held["load"] == "large") & held["ranks"].isin([1, held["ranks"].max()])]
        scale = 1024 if shown["predicted"].max() > 2048 else 1
        assert drawn == pytest.approx(shown["predicted"].sum() / scale), "the items add up to the ledger"
        assert left.get_ylim()[0] > left.get_ylim()[1], "one GPU alone is on top"


@pytest.mark.parametrize("printed", [None, published("gpt2_batch_size")])
@pytest.mark.parametrize("name", ["batches", "few"])
def test_batches_chart(runs, name, printed):
    table = sharding.batches(runs[name])
    figure = checked(sharding.batches_chart(None, table, printed))
    rate, memory = figure.axes
    unfit = table["tokens_per_s"].isna()
    crosses = [line for line in memory.lines if line.get_marker() == "X"]
    assert [line.get_xdata()[0] for line in crosses] == table.loc[unfit, "micro_batch"].tolist()
    said = [text.get_text().strip(": ") for text in memory.texts]
    assert said == ["out of memory"] * unfit.sum()
    assert memory.get_ylabel() == ("MiB on one GPU" if name == "few" else "GiB on one GPU")
    scale = 1 if name == "few" else 1024
    ledger = next(line for line in memory.lines if line.get_marker() == "|")
    assert list(ledger.get_ydata()) == pytest.approx(table["predicted_mib"] / scale)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("published (H100)" in labels) == (printed is not None)
    triangles = [line for line in rate.lines if line.get_marker() == "^"]
    assert [len(line.get_xdata()) for line in triangles] == ([] if printed is None else [5]), "one did not fit"
    assert all(ax.get_ylim()[0] == 0 for ax in figure.axes)


def test_this_run_stands_above_the_recorded_one(runs):
    here, recorded = sharding.batches(runs["few"]), sharding.batches(runs["batches"])
    figure = checked(sharding.batches_chart(here, recorded, published("gpt2_batch_size")))
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert len(titles) == 4 and "one CPU process" in titles[0] and "one GPU" in titles[2]
    triangles = [sum(line.get_marker() == "^" for line in ax.lines) for ax in figure.axes]
    assert triangles == [0, 0, 1, 0], "published rates stand beside the recorded ones"


@pytest.mark.parametrize("names", [("ladder",), ("short",), ("short", "ladder")])
@pytest.mark.parametrize("guess", [None, 120_000.0])
def test_waterfall_chart(runs, names, guess):
    tables = [sharding.ladder(runs[name]) for name in names]
    figure = checked(sharding.waterfall_chart(*tables, published=32582, guess=guess))
    for ax, table in zip(figure.axes, tables, strict=True):
        rates = table["tokens_per_s"].dropna()
        ends = [patch.get_x() + patch.get_width() for patch in ax.patches]
        assert ends == pytest.approx(rates), "each bar ends at its rung's rate"
        assert sum("out of memory" in text.get_text() for text in ax.texts) == len(table) - len(rates)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("your prediction" in labels) == bool(guess)
    assert {"published", "faster", "slower", "within noise"} <= set(labels), "every line and colour is named"
