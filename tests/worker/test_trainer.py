"""Parts of a training in one process: samples by rank, optimizers, precisions, accumulation, what is counted."""

from itertools import chain, islice

import pytest
import torch
import torch.distributed as dist
from torch import nn

from labkit.plans import TRAINING_PRECISIONS
from labkit.worker.bert import samples
from labkit.worker.collectives import CollectiveCounter
from labkit.worker.counting import SavedTensors
from labkit.worker.trainer import MasterAdamW, Trainer, adamw, batches
from lessons.ddp_fsdp.plan import Strategies
from lessons.ddp_fsdp.worker.bert import Bert

CPU = torch.device("cpu")
BATCH, STEPS = 12, 4  # of an epoch


def numbers(rank: int, ranks: int, steps: int = 3 * STEPS, **knobs) -> list[list[int]]:
    """Give the numbers of the samples in a rank's part of each batch."""
    tensors = (torch.arange(BATCH * STEPS),)
    made = islice(batches(tensors, BATCH, rank, ranks, seed=7, **knobs), steps)
    return [part[-1].tolist() for part in made]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_together_have_the_batches_of_one_process(ranks):
    parts = [numbers(rank, ranks) for rank in range(ranks)]
    assert all(len(own) == BATCH // ranks for part in parts for own in part)
    together = [sorted(chain(*step)) for step in zip(*parts, strict=True)]
    assert together == [sorted(step) for step in numbers(0, 1)]


def test_an_epoch_has_every_sample_once_in_an_order_of_its_own():
    epochs = [[*chain(*numbers(0, 1)[i : i + STEPS])] for i in range(0, 3 * STEPS, STEPS)]
    assert all(sorted(epoch) == list(range(BATCH * STEPS)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert numbers(0, 1) == numbers(0, 1), "the seed alone decides"


def test_the_samplers_two_bugs():
    assert numbers(0, 2, share=False) == numbers(1, 2, share=False)
    again = numbers(0, 2, reshuffle=False)
    assert again[:STEPS] == again[STEPS : 2 * STEPS]


def test_an_update_too_small_for_bfloat16_is_not_lost():
    kept, lost = (nn.Parameter(torch.ones(8, dtype=torch.bfloat16)) for _ in range(2))
    ours, plain = MasterAdamW([kept], lr=1e-4), torch.optim.AdamW([lost], lr=1e-4)
    for _ in range(100):
        kept.grad, lost.grad = torch.ones_like(kept), torch.ones_like(lost)
        ours.step()
        plain.step()
    assert (lost == 1).all(), "a step of 1e-4 is less than half of what bfloat16 tells apart below 1"
    assert ours.masters[0].tolist() == pytest.approx([0.99] * 8, abs=2e-4)
    assert (kept == torch.tensor(0.99).bfloat16()).all()


def test_masters_are_updated_as_float32_weights_are():
    generator = torch.Generator().manual_seed(1)
    start, *gradients = torch.randn(6, 16, generator=generator).bfloat16()
    half, full = nn.Parameter(start.clone()), nn.Parameter(start.float())
    ours, right = MasterAdamW([half], lr=0.01, fused=True), torch.optim.AdamW([full], lr=0.01, fused=True)
    for gradient in gradients:
        half.grad, full.grad = gradient.clone(), gradient.float()
        ours.step()
        right.step()
    assert torch.equal(ours.masters[0], full)
    assert torch.equal(half, full.bfloat16())
    assert half.grad is None
    assert [value.dtype for value in next(iter(ours.state.values())).values()] == [torch.float32] * 3


@pytest.mark.parametrize("precision", TRAINING_PRECISIONS)
@pytest.mark.slow
def test_every_precision_trains(precision):
    plan = Strategies.small(gpus=2, layers=2, hidden=32)
    model = Bert(plan, 0, CPU, precision)
    trainer = Trainer(model, "single", None, CPU, adamw(1e-2, precision, fused=True))
    batch = samples(plan, 8, 0)
    losses = [trainer.step([batch]).item() for _ in range(8)]
    assert losses[-1] < losses[0]
    bytes_each = 2 if precision == "bfloat16" else 4
    held = trainer.bytes_by_item()
    assert held["parameters"] == bytes_each * plan.model.parameters
    assert held["optimizer"] == (12 if precision == "bfloat16" else 8) * plan.model.parameters
    assert held["gradients"] == 0, "an update lets them go"
    trainer.gradients([batch])
    assert trainer.bytes_by_item()["gradients"] == bytes_each * plan.model.parameters


@pytest.mark.parametrize(("divide", "factor"), [(True, 1), (False, 2)])
def test_micro_batches_add_up_to_the_batch(divide, factor):
    plan = Strategies.small(gpus=2, layers=1, hidden=16)
    whole, parts = (
        Trainer(Bert(plan, 0, CPU), "single", None, CPU, adamw(1e-3, "float32", False), divide=divide) for _ in range(2)
    )
    tokens, labels = samples(plan, 8, 0)
    loss = whole.gradients([(tokens, labels)])
    halves = parts.gradients([(tokens[:4], labels[:4]), (tokens[4:], labels[4:])])
    assert halves.item() == pytest.approx(factor * loss.item(), rel=1e-5)
    for one, other in zip(whole.weights(), parts.weights(), strict=True):
        torch.testing.assert_close(other.grad, factor * one.grad, rtol=1e-3, atol=1e-6)


def test_saved_counts_every_storage_once_and_no_parameter():
    layer, scale, tokens = nn.Linear(8, 8), nn.Parameter(torch.ones(8)), torch.ones(4, 8)
    with (saved := SavedTensors()):
        hidden = layer(tokens)
        (hidden.relu() * scale + layer(tokens).exp() + hidden.view(32).tanh().sum()).sum()
    assert saved.bytes == 4 * (4 * 8) * 4, "the input once, and what relu, exp and tanh give"


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # the names that torch 2.11 knows, too
def test_collectives_are_counted_by_their_whole_tensors():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        tensor = torch.ones(6)
        with CollectiveCounter() as sent:
            dist.all_reduce(tensor)
            dist.all_reduce(tensor[:2])
            dist.all_gather_into_tensor(torch.empty(6), tensor)
            dist.reduce_scatter_tensor(torch.empty(6), tensor)
            dist.broadcast(tensor.double(), 0)
        dist.all_reduce(tensor)
    finally:
        dist.destroy_process_group()
    assert sent.calls == {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "broadcast": 1}
    assert sent.bytes == {"all-reduce": 32, "all-gather": 24, "reduce-scatter": 24, "broadcast": 48}
    assert sent.largest == 48
