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
def test_scaling_chart(runs, names):
    tables = [sharding.strategies(runs[name]) for name in names]
    figure = checked(sharding.scaling_chart(*tables))
    assert len(figure.axes) == len(tables)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["target 0.95", LARGE, SHARED]
    for ax, table in zip(figure.axes, tables, strict=True):
        rows = table[table["strategy"] != "single"]
        wide = sorted(patch.get_width() for patch in ax.patches if patch.get_width() > 0)
        assert wide == pytest.approx(sorted(rows["efficiency"].dropna()))
        assert len(ax.texts) == rows["tokens_per_s"].notna().sum(), "each bar that was measured has its rate"
        settings = rows[["ranks", "strategy"]].drop_duplicates()
        assert len(ax.get_yticklabels()) == len(settings)
        assert ax.get_ylim()[0] > ax.get_ylim()[1], "the fewest ranks are on top"


@pytest.mark.parametrize("printed", [None, published("gpt2_batch_size")])
@pytest.mark.parametrize("name", ["batches", "few"])
def test_batches_chart(runs, name, printed):
    table = sharding.batches(runs[name])
    figure = checked(sharding.batches_chart(table, printed))
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
