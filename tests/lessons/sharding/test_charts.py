"""Lab 05's charts of runs that lack a part, alone and beside the recorded ones."""

import pytest
from figures import checked
from made import CPU, write_run
from made_sharding import full, made, step_of

from labkit.engine.recordings import replay
from labkit.tables.published import published
from lessons import sharding


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The recorded runs by their plans, a small run of strategies, and one that lacks a part."""
    folder = tmp_path_factory.mktemp("charts")

    def small(plan):
        steps = [
            (0, vars(point) | {"entry": "step", "iteration": i, "step_ms": 10.0 + point.ranks + point.micro_batch + i})
            for point in plan.points()
            for i in range(3)
        ]
        return write_run(folder / plan.name, plan, CPU, steps)

    strategies = full(sharding.Strategies, large=48)
    return {name: replay(path) for name, path in sharding.RECORDED.items()} | {
        "few strategies": small(sharding.Strategies.small(device="cpu", gpus=2)),
        "no ddp": made(
            folder / "no ddp", strategies, step_of, failed=lambda p: (p.strategy, p.load) == ("ddp", "large")
        ),
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
    for (rates, _), ax in zip(pairs, figure.axes[::2], strict=True):
        rows = rates[rates["ranks"].isin([1, rates["ranks"].max()])]
        assert len(ax.texts) == rows["efficiency"].count(), "each bar that was measured has its share"


def test_trace_charts(runs):
    checked(sharding.breakdown_chart(sharding.profile(runs["profiles"])))
    spans = [sharding.trace_spans(runs["profiles"], name) for name in ("ddp", "fsdp_grad", "fsdp_full")]
    figure = checked(sharding.trace_chart(spans[2]))
    assert len(figure.axes[0].get_yticks()) == 2, "every rank of one strategy"
    figure = checked(sharding.trace_chart(*spans))
    assert [len(ax.get_yticks()) for ax in figure.axes] == [1, 1, 1], "one rank of each"


def test_memory_chart(runs):
    none, pair = (
        (sharding.memory_timeline(run), sharding.segments(run)) for run in (runs["few strategies"], runs["timeline"])
    )
    figure = checked(sharding.memory_chart(none, pair))
    assert len(figure.axes) == 2, "a run without GPU memory is left out"
    with pytest.raises(ValueError, match="record of the GPU's memory"):
        sharding.memory_chart(none)


def test_projection_chart(projected):
    of_four, of_two = projected
    checked(sharding.projection_chart(of_four, of_two, published("gpt2_projection")))
    alone = labels(checked(sharding.projection_chart(of_four)))
    assert alone == {"projected", "… if α grows", "recorded run"}
