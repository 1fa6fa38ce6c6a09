"""What the points of lab 17 need of a GPU's memory: the recorded peaks, and the sizes that follow from it."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from labkit.engine.recordings import replay
from labkit.theory.gpt import forward_bytes
from labkit.theory.sizes import MIB
from labkit.worker.counting import SavedTensors
from labkit.worker.gpt import Gpt, samples
from lessons import one_gpu
from lessons.one_gpu import Batches, Head, Ladder, Trial
from lessons.one_gpu.measures import over_published, tokens

GB = (139, 79, 39, 22, 14.5, 7)
LARGE, MEDIUM, SMALL = "GPT-2 Large", "GPT-2 medium", "GPT-2 small"
SIZES = {  # at the free memories in GB
    Ladder: (
        "full",
        f"{LARGE}, large=32, micro_batch=8",
        f"{LARGE}, large=12, micro_batch=2",
        f"{LARGE}, large=2, micro_batch=1",
        f"{MEDIUM}, large=6, micro_batch=1",
        f"{SMALL}, large=8, micro_batch=2",
    ),
    Batches: ("full", "full", "full", "full", MEDIUM, SMALL),
    Trial: ("full",) * 6,
}


def test_what_is_needed_is_the_recorded_peak():
    """Within 3 %, and never much more: what is left out would not have fitted."""
    run = replay(one_gpu.RECORDED["batches"])
    rows = run.rows[run.rows["peak_mib"].notna()]
    assert len(rows) >= 6
    for row in rows.to_dict("records"):
        error = run.plan.needed_bytes(SimpleNamespace(**row)) / (row["peak_mib"] * MIB) - 1
        assert -0.03 < error < 0.003, (error, row)


def test_plain_attention_keeps_what_the_formula_says():
    plan = Batches.small(device="cpu", gpus=1)
    point = SimpleNamespace(seed=0, **plan.setting(micro_batch=2, attention="plain"))
    model = Gpt(plan, point, torch.device("cpu"))
    with (saved := SavedTensors()):
        model(*samples(plan, 2, 0))
    gradients = 2 * 4 * 2 * plan.sequence * point.vocabulary
    due = forward_bytes(plan.layers, plan.hidden, plan.heads, plan.sequence, point, 2) - gradients
    assert saved.bytes == pytest.approx(due, rel=0.005)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("number", range(len(GB)))
def test_auto_takes_the_largest_size_that_fits(free, kind, number):
    room = free(1, GB[number])
    plan = kind.sized("auto")
    name = plan.left_out.rpartition(": ")[2].removesuffix(" instead") or "full"
    assert name == SIZES[kind][number]
    assert plan.most_needed_bytes() <= room
    assert plan.size == ("full" if name == "full" else "middle")
    if name != "full":
        middle = [{}, *kind.MIDDLE.values()]
        larger = kind.full(**middle[[*kind.MIDDLE].index(name)])
        assert larger.most_needed_bytes() > room, "the next larger one"


def test_a_sweep_of_batches_goes_on_until_nothing_fits(free):
    free(1, 22)
    plan = Batches.sized("auto")
    needed = [plan.needed_bytes(point) for point in plan.points()]
    assert needed == sorted(needed) and needed[0] < 22e9 < needed[-1]


def test_logits_in_pieces_need_less_than_whole_ones():
    plan = Head.full(device="cuda", gpus=1)
    whole, pieces = (plan.needed_bytes(point) for point in plan.points())
    logits = 4 * 4 * plan.tokens * plan.words
    assert whole - pieces == logits * (1 - 1 / plan.pieces)
    assert [point.way for point in Head.full(device="cuda", gpus=1, yours="a.py").points()][-1] == "yours"


def test_a_smaller_model_is_not_held_against_the_reports(monkeypatch):
    figures = (partial(tokens, rung="one graph"), partial(over_published, in_float8=True))
    run = replay(one_gpu.RECORDED["ladder"])
    assert run.plan.of_the_report and all(figure(run) for figure in figures)
    monkeypatch.setattr(type(run.plan), "of_the_report", False)
    assert not any(figure(run) for figure in figures)
