"""Lab 11's explorer: bars are as long as the formula says, and the sentence says what they show."""

import re

import pytest

from labkit.theory.transformer import SIZES, transformer
from lessons.optimizer_sharding.explorer import HELD, LANE, MIDDLE, OPTIMIZERS, SENT, explore, picture
from lessons.optimizer_sharding.theory import PRECISIONS, STAGES, stage


def bars(html: str) -> tuple[dict[str, float], dict[str, float]]:
    """Give how long every stage's bars of held and of sent bytes are, in pixels."""
    found = [tuple(map(float, one)) for one in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', html)]
    held, sent = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0.0)
    for x, y, width in found:
        (sent if x >= MIDDLE else held)[[*STAGES][int(y - 20) // LANE]] += width
    return held, sent


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_bars_are_the_formulas(size, optimizer, precision):
    elements = transformer(*SIZES[size][:3]).parameters
    held, sent = bars(picture(size, 8, optimizer, precision))
    due = {name: stage(name, elements, 8, OPTIMIZERS[optimizer], precision) for name in STAGES}
    for name in STAGES:
        assert held[name] == pytest.approx(HELD * due[name].held / due["ddp"].held, abs=0.2)
        assert sent[name] == pytest.approx(SENT * due[name].sent / max(one.sent for one in due.values()), abs=0.1)


def test_the_sentence():
    assert "<b>xl</b> under AdamW on 2 ranks: sharding states saves 7.99 GB, 25 %; ours sends 1.5×" in picture(
        "xl", 2, "AdamW", "float32"
    )
    assert "saves nothing, for there is one rank" in picture("xl", 1, "AdamW", "float32")
    assert "saves nothing, for there is no state" in picture("xl", 4, "SGD", "float32")


def test_knobs_change_the_picture():
    box = explore()
    knobs = {knob.description: knob for side in box.children[0].children for knob in side.children}
    shown = box.children[1]
    before = shown.value
    knobs["ranks"].value = 64
    assert "on 64 ranks" in shown.value
    assert shown.value != before
