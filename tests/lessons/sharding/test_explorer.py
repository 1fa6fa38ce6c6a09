"""Lab 05's explorer: what a GPU holds adds up, what fits is said, and the bars are drawn to the GPU's memory."""

import re

import pytest

from labkit.charts.knobs import region
from labkit.plans import STRATEGIES
from labkit.theory.gpt import SIZES, gpt
from labkit.theory.memory import ITEMS
from labkit.theory.sizes import GIB
from lessons.sharding.explorer import LEFT, MEMORY_GIB, explore, picture
from lessons.sharding.theory import COUNTS, fewest_gpus, fits_memory


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_ledger_adds_up(strategy, precision):
    found = fits_memory("GPT-2 XL", strategy, 8, 80.0, precision)
    assert tuple(found["ledger"]) == ITEMS
    assert found["total_gib"] == pytest.approx(sum(found["ledger"].values()))
    states = {"float32": 12, "bfloat16": 14}[precision]  # weight and states, which a GPU always has
    shares = 1 if strategy in ("single", "ddp") else 8
    held = found["ledger"]["parameters"] + found["ledger"]["optimizer"]
    assert held == pytest.approx(states * gpt(48, 1600).parameters / GIB / shares, rel=1e-3)


def test_six_percent_stay_free():
    total = fits_memory("7 B", "fsdp_full", 8, 80.0)["total_gib"]
    assert fits_memory("7 B", "fsdp_full", 8, total / 0.939)["fits"]
    assert not fits_memory("7 B", "fsdp_full", 8, total / 0.941)["fits"]
    assert fits_memory(SIZES["7 B"], "fsdp_full", 8, 80.0)["total_gib"] == total


def test_fewest_gpus():
    fewest = fewest_gpus("65 B", "fsdp_full", 79.6, micro_batch=1)
    assert fits_memory("65 B", "fsdp_full", fewest, 79.6)["fits"]
    assert not fits_memory("65 B", "fsdp_full", fewest // 2, 79.6)["fits"]
    assert fewest_gpus("65 B", "ddp", 179.1) is None
    assert fewest_gpus("GPT-2 small", "ddp", 40.0) == 1


def bars(html: str) -> dict[str, float]:
    """Give the right end of every strategy's bar, in pixels."""
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', html)
    ends = [max(float(x) + float(width) for x, y, width in found if float(y) // 30 == row) for row in range(5)]
    return dict(zip(STRATEGIES, ends, strict=True))


@pytest.mark.parametrize(("size", "gpu"), [*zip(SIZES, [*MEMORY_GIB] * 2, strict=False)])
def test_bars_end_where_they_should(size, gpu):
    html = picture(size, 8, gpu, "bfloat16", 2)
    line = float(re.search(r'<line x1="([\d.]+)"', html)[1])
    for strategy, end in bars(html).items():
        total = fits_memory(size, strategy, 8, MEMORY_GIB[gpu], "bfloat16", 2)["total_gib"]
        wanted = LEFT + (line - LEFT) * min(2.0, total / MEMORY_GIB[gpu])
        assert end == pytest.approx(wanted, abs=2), strategy
        assert f">{strategy}<" in html
    assert html.count("✔") + html.count("✘") == len(STRATEGIES)


@pytest.mark.parametrize(
    ("knobs", "fitting", "said"),
    [
        (
            ("7 B", 8, "H100 80 GB", "bfloat16", 1),
            3,
            "there fit fsdp_grad, fsdp_full and fsdp_root; fsdp_full fits on 2 GPUs",
        ),
        (("GPT-2 small", 1, "A100 40 GB", "float32", 1), 5, "on 1 GPU,"),
        (
            ("65 B", 64, "A100 40 GB", "float32", 64),
            0,
            "fits <b>no strategy</b>; fsdp_full fits on none of 1 to 64 GPUs",
        ),
        (("65 B", 16, "H200 141 GB", "bfloat16", 1), 1, ": there fits fsdp_full; "),
    ],
)
def test_what_fits_is_said(knobs, fitting, said):
    html = picture(*knobs)
    assert said in html and html.count("✔") == fitting
    assert (html.count("»") == 5) == (fitting == 0), "bars of more than twice the memory are cut"


def test_the_sliders_draw():
    shown = explore()
    left, right = (box.children for box in shown.children[0].children)
    before = shown.children[1].value
    assert "<b>7 B</b>" in before and left[1].options == COUNTS
    left[0].value = "65 B"
    right[1].value = 8
    assert shown.children[1].value == region(picture("65 B", 8, "H100 80 GB", "bfloat16", 8)) != before
