"""The classes in this process: what they refuse, and that they leave nothing behind."""

import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn

from labkit.worker.allocations import CountedMemory
from lessons.fsdp_from_scratch.worker.probe import Block, backward_on_rank, is_unit, samples_of, sharded_probe
from lessons.fsdp_from_scratch.worker.units import FullySharded


@pytest.fixture(autouse=True)
def one_rank(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_weights_tied_between_two_units_are_refused():
    first, second = Block(False), Block(False)
    second.up.weight = first.up.weight
    model = nn.Sequential(first, second)
    with pytest.raises(ValueError, match="two units are tied"):
        FullySharded(model, is_unit)


def test_a_model_is_let_go_after_steps():
    model = sharded_probe("plain", 0, 0)
    backward_on_rank(model, "plain", samples_of(0, 0, 0))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None, "hooks of a step keep the model, and all its memory"


def test_between_steps_only_shards_are_held():
    with CountedMemory() as counted:
        model = sharded_probe("plain", 0, 0)
        backward_on_rank(model, "plain", samples_of(0, 0, 0))
        gradients = sum(shard.grad.nbytes for shard in model.shards if shard.grad is not None)
        shards = sum(shard.nbytes for shard in model.shards)
        assert all(weight.grad is None for weight in model.weights)
        assert counted.held == gradients + shards


def test_a_model_that_only_predicts_holds_nothing_whole():
    model = sharded_probe("plain", 0, 0)
    with torch.no_grad():
        model(*samples_of(0, 0, 0))
    assert not any(flat.whole.untyped_storage().nbytes() for flat in model.flats)
