"""Lab 17's charts of runs that lack a part, alone and beside the recorded ones; what a step holds, by formula."""

import pytest
from figures import checked
from made import CPU, write_run
from made_sharding import full, made

from labkit.engine.recordings import replay
from labkit.tables.published import published
from lessons import one_gpu

PUBLISHED = 32582  # tokens/s


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The recorded runs by their plans, a small run of batches, and a ladder that ends early."""
    folder = tmp_path_factory.mktemp("charts")
    few = one_gpu.Batches.small(device="cpu", gpus=1)
    steps = [
        (0, vars(point) | {"entry": "step", "iteration": i, "step_ms": 10.0 + point.micro_batch + i})
        for point in few.points()
        for i in range(3)
    ]
    ladder = full(one_gpu.Ladder, gpus=1)
    return {name: replay(path) for name, path in one_gpu.RECORDED.items()} | {
        "few batches": write_run(folder / few.name, few, CPU, steps),
        "short": made(folder / "short", ladder, lambda point: 300.0, failed=lambda point: point.point > 5),
    }


def labels(figure) -> set[str]:
    return {text.get_text() for text in figure.legends[0].get_texts()}


def test_batches_chart(runs):
    here, recorded = (one_gpu.batches(runs[name]) for name in ("few batches", "batches"))
    figure = checked(one_gpu.batches_chart(here, recorded, published("gpt2_batch_size")))
    assert [ax.get_ylabel() for ax in figure.axes[1::2]] == ["MiB of one rank", "GiB of one rank"]
    assert [text.get_text().strip(": ") for ax in figure.axes for text in ax.texts] == ["out of memory"]
    assert "one CPU process" in figure.axes[0].get_title(loc="left")
    assert "published (H100)" in labels(figure)
    assert "published (H100)" not in labels(checked(one_gpu.batches_chart(None, recorded)))


@pytest.mark.parametrize(("names", "guess"), [(("short", "ladder"), None), (("ladder",), 90_000.0)])
def test_waterfall_chart(runs, names, guess):
    tables = [one_gpu.ladder(runs[name]) for name in names]
    figure = checked(one_gpu.waterfall_chart(*tables, published=PUBLISHED, guess=guess))
    for ax, table in zip(figure.axes, tables, strict=True):
        assert sum("out of memory" in text.get_text() for text in ax.texts) == table["tokens_per_s"].isna().sum()
    assert ("your prediction" in labels(figure)) == bool(guess)


def test_held_chart():
    table = one_gpu.held((1, 32))
    figure = checked(one_gpu.held_chart(table), drawing=True)
    assert "theory" in figure.get_supxlabel()
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1 sequence", "32 sequences"]
    ends = [
        max(bar.get_x() + bar.get_width() for bar in ax.patches if bar.get_y() < place < bar.get_y() + 1)
        for place in (0, 1)
    ]
    whole = table[["weights_gib", "blocks_gib", "logits_gib"]].sum(axis=1)
    assert ends == pytest.approx(whole.to_list())
    assert "5.3 % logits" in ax.texts[1].get_text()
