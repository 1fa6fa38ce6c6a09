"""GPT-2 as shapes, bytes and FLOP: the worker's model has these parameters, keeps these bytes and does this work."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from labkit.theory.gpt import SIZES, VOCABULARY, activations, flop_per_token, gpt, padded
from labkit.theory.shapes import elements
from labkit.worker.counting import Saved
from labkit.worker.gpt import Gpt, samples
from lessons.sharding.plan import Batches, Profiles


def built(plan, **setting) -> tuple[Gpt, SimpleNamespace]:
    point = SimpleNamespace(seed=0, **plan.setting(**setting))
    return Gpt(plan, point, torch.device("cpu")), point


def small(**knobs) -> Batches:
    return Batches.small(device="cpu", gpus=1, **knobs)


@pytest.mark.parametrize(("knobs", "pad"), [({}, True), ({"layers": 2, "hidden": 64, "heads": 4, "words": 77}, False)])
def test_shapes_are_the_models_in_its_order(knobs, pad):
    plan = small(**knobs)
    model, point = built(plan, pad=pad)
    assert [tuple(weight.shape) for weight in model.parameters()] == list(plan.model(point.vocabulary).shapes)
    block = list(plan.model(point.vocabulary).block)
    assert [tuple(weight.shape) for weight in model.blocks[0].parameters()] == block


def test_published_sizes():
    counted = {name: gpt(layers, hidden).parameters for name, (layers, hidden, _) in SIZES.items()}
    assert counted["GPT-2 small"] == 124_439_808
    assert counted["GPT-2 medium"] == 354_823_168
    assert counted["GPT-2 Large"] == 774_030_080
    assert counted["GPT-2 XL"] == 1_557_611_200
    assert all(hidden % heads == 0 for _, hidden, heads in SIZES.values())
    plan = Profiles.full(device="cuda", gpus=2)
    assert plan.model(VOCABULARY).parameters == 774_030_080


@pytest.mark.parametrize(
    ("knobs", "micro_batch"),
    [({}, 4), ({}, 8), ({"layers": 5, "hidden": 64, "heads": 8}, 4), ({"sequence": 128, "words": 1000}, 2)],
)
def test_activations_are_what_a_forward_keeps(knobs, micro_batch):
    plan = small(**knobs)
    model, point = built(plan, micro_batch=micro_batch)
    predicted = activations(plan.layers, plan.hidden, plan.heads, point.vocabulary, micro_batch, plan.sequence)
    with (saved := Saved()):
        model(*samples(plan, micro_batch, 0))
    assert saved.bytes == pytest.approx(predicted, rel=0.01)
    plain, _ = built(plan, micro_batch=micro_batch, attention="plain")
    with (saved := Saved()):
        plain(*samples(plan, micro_batch, 0))
    assert saved.bytes > 1.05 * predicted, "plain attention keeps its scores, too"


def test_half_as_wide_elements_take_half_but_for_statistics():
    whole, half = (activations(36, 1280, 20, 50304, 8, 1024, size) for size in (4, 2))
    statistics = 8 * 1024 * (36 * 24 + 2) * 4
    assert half - statistics == (whole - statistics) / 2
    assert activations(36, 1280, 20, 50304, 16, 1024) == 2 * whole


@pytest.mark.parametrize("knobs", [{}, {"layers": 2, "hidden": 64, "heads": 4, "sequence": 32, "words": 100}])
def test_flop_are_those_that_torch_counts(knobs):
    """All but biases, LayerNorms and positions are multiplied with; these are few, and the rule counts them in."""
    plan = small(**knobs)
    model, _ = built(plan, pad=False, attention="plain")
    with FlopCounterMode(display=False) as counter:
        model(*samples(plan, 2, 0)).backward()
    shapes = gpt(plan.layers, plan.hidden, plan.words, plan.sequence).shapes
    added = elements(tuple(shape for shape in shapes if len(shape) == 1)) + plan.sequence * plan.hidden
    due = flop_per_token(elements(shapes) - added, plan.layers, plan.hidden, plan.sequence)
    assert counter.get_total_flops() == 2 * plan.sequence * due


def test_flop_of_the_published_model():
    assert flop_per_token(774_030_080, 36, 1280, 1024) == 6 * 774_030_080 + 566_231_040


@pytest.mark.parametrize(("words", "rows"), [(50257, 50304), (128, 128), (129, 256), (1, 128)])
def test_padded_rounds_up(words, rows):
    assert padded(words) == rows
    assert padded(words, 1) == words
