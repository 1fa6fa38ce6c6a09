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


_WIDTH = 5


class Inner(nn.Module):
    """A perceptron; where it `skips`, its output is its input."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(_WIDTH, 7), nn.Linear(7, _WIDTH)

    def forward(self, x, skips=False):
        return x if skips else x + self.down(torch.tanh(self.up(x)))


class Outer(nn.Module):
    """A unit with weights of its own and two units inside."""

    def __init__(self):
        super().__init__()
        self.first, self.one, self.two = nn.Linear(_WIDTH, _WIDTH), Inner(), Inner()

    def forward(self, x):
        return self.two(self.first(self.one(x)))


class InPlace(nn.Module):
    """Changes its input in place, by a weight."""

    def __init__(self):
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.rand(_WIDTH)), nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x):
        return self.last(x.mul_(self.scale))


class Named(nn.Module):
    """Takes inputs by name and returns tensors in a dictionary, one of them of its weights alone."""

    def __init__(self):
        super().__init__()
        self.line, self.free = nn.Linear(_WIDTH, _WIDTH), nn.Parameter(torch.rand(_WIDTH))

    def forward(self, x, *, gain):
        return {"x": gain * self.line(x), "more": (self.free.exp(), 3, None)}


class Chain(nn.Module):
    """A projection and units, which `run` calls; `run` returns the losses of a step."""

    def __init__(self, units, run):
        super().__init__()
        self.first, self.units, self.run = nn.Linear(_WIDTH, _WIDTH), nn.ModuleList(units), run

    def forward(self, x, step):
        return self.run(self.units, self.first(x), step)


def _all(units, x, step):
    for unit in units:
        x = unit(x)
    return [x.square().mean()]


def _others(units, x, step):
    """Use units 0 and 2 in even steps, and 1 in odd ones."""
    return _all(units[step % 2 :: 2], x, step)


def _skipping(units, x, step):
    for number, unit in enumerate(units):
        x = unit(x, skips=(number + step) % 2 == 0)
    return [x.square().mean()]


def _named(units, x, step):
    more = 0
    for unit in units:
        made = unit(x, gain=0.5)
        x, more = made["x"], more + made["more"][0]
    return [x.square().mean(), more.square().mean()]


ODD = {
    "nested": (lambda: [Outer(), Inner()], _all),
    "one module in two places": (lambda: [one := Inner(), Inner(), one], _all),
    "input changed in place": (lambda: [InPlace(), InPlace()], _all),
    "each second step": (lambda: [Inner(), Inner(), Inner()], _others),
    "output is the input": (lambda: [Inner(), Inner(), Inner()], _skipping),
    "two losses, a backward each": (lambda: [Named(), Named()], _named),
}


@pytest.mark.parametrize("options", [{}, {"prefetch": 2}, {"release": False}], ids=str)
@pytest.mark.parametrize("name", ODD)
def test_odd_models_train_as_without_units(name, options):
    """Steps of two backwards, the first without sending, and a prediction before each update."""
    make, run = ODD[name]
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Chain(make(), run))
    kinds = Inner, Outer, InPlace, Named
    sharded = FullySharded(models[0], lambda module: isinstance(module, kinds), **options)
    optimizers = [torch.optim.SGD(each, lr=0.1) for each in (sharded.shards, models[1].parameters())]
    for step in range(3):
        x, y = torch.randn(2, 4, _WIDTH)
        for model in (sharded, models[1]):
            with sharded.no_sync():
                _backward(model(x, step))
            _backward(model(y, step + 1))
        sharded.finish()
        assert not any(flat.whole.untyped_storage().nbytes() for flat in sharded.flats)
        assert all(weight.grad is None for weight in sharded.weights), "a gradient was not sent"
        with torch.no_grad():
            assert sharded(x, step)[0].item() == pytest.approx(models[1](x, step)[0].item(), rel=1e-5)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for mine, due in zip(sharded.whole(), models[1].parameters(), strict=True):
        torch.testing.assert_close(mine, due.detach())


def _backward(losses):
    for number, loss in enumerate(losses):
        loss.backward(retain_graph=number < len(losses) - 1)
