"""GPT-2: the worker's model is that of transformers, and has the parameters, bytes and work that theory counts."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel

from labkit.theory.gpt import SIZES, VOCABULARY, activations, flop_per_token, gpt
from labkit.theory.shapes import elements
from labkit.worker.counting import SavedTensors
from labkit.worker.gpt import Gpt, samples
from lessons.one_gpu.plan import Batches, Ladder


def built(plan, **setting) -> tuple[Gpt, SimpleNamespace]:
    point = SimpleNamespace(seed=0, **plan.setting(**setting))
    return Gpt(plan, point, torch.device("cpu")), point


def small(**knobs) -> Batches:
    return Batches.small(device="cpu", gpus=1, **knobs)


def logits_of(model: Gpt, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the logits that the head makes of what the last LayerNorm gives, and the model's own loss."""
    last = []
    hook = model.norm.register_forward_hook(lambda module, given, result: last.append(result))
    loss = model(tokens, targets)
    hook.remove()
    return functional.linear(last[0], model.embedding.weight), loss


@pytest.mark.parametrize("attention", ["plain", "fused"])
def test_the_model_is_gpt2(attention):
    plan = small()
    ours, _ = built(plan, attention=attention, pad=False)
    nothing = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)
    config = GPT2Config(
        vocab_size=plan.words,
        n_positions=plan.sequence,
        n_embd=plan.hidden,
        n_layer=plan.layers,
        n_head=plan.heads,
        activation_function="gelu_new",
        **nothing,
    )
    theirs = GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(1)
    pairs = list(zip(ours.parameters(), theirs.named_parameters(), strict=True))
    turned = [weight.dim() > 1 and ".c_" in name for _, (name, weight) in pairs]  # their Conv1D
    with torch.no_grad():
        for (own, (_, other)), turn in zip(pairs, turned, strict=True):
            own.normal_(std=0.2, generator=generator)
            other.copy_(own.T if turn else own)
    tokens, targets = samples(plan, 3, 0)
    logits, loss = logits_of(ours, tokens, targets)
    right = theirs(tokens).logits
    torch.testing.assert_close(logits, right, rtol=1e-5, atol=1e-4)
    right_loss = functional.cross_entropy(right.flatten(0, 1), targets.flatten())
    assert loss.item() == pytest.approx(right_loss.item(), rel=1e-5)
    loss.backward()
    right_loss.backward()
    for (own, (_, other)), turn in zip(pairs, turned, strict=True):
        torch.testing.assert_close(own.grad, other.grad.T if turn else other.grad, rtol=1e-4, atol=1e-5)


def test_padding_adds_words_that_are_never_targets():
    plan = small()
    (plain, _), (wide, _) = built(plan, pad=False), built(plan)
    assert (plain.embedding.num_embeddings, wide.embedding.num_embeddings) == (500, 512)
    state = plain.state_dict()
    state["embedding.weight"] = torch.cat([state["embedding.weight"], torch.zeros(12, plan.hidden)])
    wide.load_state_dict(state)
    tokens, targets = samples(plan, 4, 0)
    assert targets.max() < 500
    assert torch.equal(tokens[:, 1:], targets[:, :-1]), "a target is the next token"
    # Twelve logits of 0 beside 500 of about 0: each probability shrinks by 512/500.
    assert (wide(tokens, targets) - plain(tokens, targets)).item() == pytest.approx(np.log(512 / 500), rel=0.05)


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
    plan = Ladder.full(device="cuda", gpus=1)
    assert plan.model(VOCABULARY).parameters == 774_030_080


@pytest.mark.parametrize(
    ("knobs", "micro_batch"),
    [({}, 4), ({}, 8), ({"layers": 5, "hidden": 64, "heads": 8}, 4), ({"sequence": 128, "words": 1000}, 2)],
)
def test_activations_are_what_a_forward_keeps(knobs, micro_batch):
    plan = small(**knobs)
    model, point = built(plan, micro_batch=micro_batch)
    predicted = activations(plan.layers, plan.hidden, plan.heads, point.vocabulary, micro_batch, plan.sequence)
    with (saved := SavedTensors()):
        model(*samples(plan, micro_batch, 0))
    assert saved.bytes == pytest.approx(predicted, rel=0.01)
    plain, _ = built(plan, micro_batch=micro_batch, attention="plain")
    with (saved := SavedTensors()):
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
def test_padding_rounds_the_vocabulary_up(words, rows):
    plan = small(words=words)
    assert (plan.setting()["vocabulary"], plan.setting(pad=False)["vocabulary"]) == (rows, words)
