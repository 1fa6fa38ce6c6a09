"""The theory of lab 04 is what its BERT is: the shapes of its parameters, and what a forward keeps."""

import math

import pytest
import torch

from labkit.theory.bert import bert_activations
from labkit.worker.bert import samples
from labkit.worker.counting import SavedTensors
from lessons.ddp_fsdp.plan import Strategies
from lessons.ddp_fsdp.worker.bert import Bert

CPU = torch.device("cpu")


def shapes_of(parameters) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in parameters]


def test_bert_is_the_model_that_is_trained():
    plan = Strategies.small(gpus=2, layers=2, hidden=32)
    model = Bert(plan, 0, CPU)
    assert shapes_of(model.parameters()) == list(plan.model.shapes)
    assert shapes_of(model.blocks[1].parameters()) == list(plan.model.block)
    inside = {id(parameter) for parameter in model.blocks.parameters()}
    assert shapes_of(p for p in model.parameters() if id(p) not in inside) == list(plan.model.root)
    assert sum(buffer.nbytes for buffer in model.buffers()) == plan.model.buffers_bytes


@pytest.mark.parametrize(("layers", "hidden", "heads", "batch", "sequence"), [(4, 128, 2, 8, 64), (6, 64, 16, 4, 128)])
def test_activations_are_those_that_a_forward_keeps(layers, hidden, heads, batch, sequence):
    plan = Strategies.small(gpus=2, layers=layers, hidden=hidden, heads=heads, sequence=sequence)
    model = Bert(plan, 0, CPU)
    with (saved := SavedTensors()):
        model(*samples(plan, batch, 0))
    due = bert_activations(layers, hidden, heads, batch, sequence)
    assert saved.bytes == pytest.approx(due, rel=0.002)
    assert math.isclose(bert_activations(layers, hidden, heads, 3 * batch, sequence), 3 * due)
    model = Bert(plan, 0, CPU, attention="plain")
    with (saved := SavedTensors()):
        model(*samples(plan, batch, 0))
    assert saved.bytes == pytest.approx(
        bert_activations(layers, hidden, heads, batch, sequence, attention="plain"), rel=0.005
    )


def test_dropout_keeps_a_mask_of_a_byte_per_number():
    shape = (4, 128, 2, 8, 64)
    layers, hidden, heads, batch, sequence = shape
    masks = (2 * layers + 1) * batch * sequence * hidden
    assert bert_activations(*shape, dropout=True) == bert_activations(*shape) + masks
    plain = bert_activations(*shape, attention="plain")
    weights = layers * heads * batch * sequence**2
    assert bert_activations(*shape, attention="plain", dropout=True) == plain + masks + 5 * weights


def test_dropout_and_plain_attention_are_what_they_say():
    plan = Strategies.small(gpus=2, layers=2)
    batch = samples(plan, 4, 0)
    fused, plain = (Bert(plan, 0, CPU, attention=name) for name in ("fused", "plain"))
    assert torch.allclose(fused(*batch), plain(*batch), rtol=1e-5)
    dropping = Bert(plan, 0, CPU, dropout=0.1)
    assert dropping(*batch) != dropping(*batch), "another mask each time"
    dropping.eval()
    assert torch.allclose(dropping(*batch), fused(*batch), rtol=1e-5)
