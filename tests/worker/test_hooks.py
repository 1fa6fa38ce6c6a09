"""A hook on a parameter runs while its owner lives, and keeps neither the owner nor the model."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from labkit.worker.strategies import after_gradient
from lessons.precision_memory.worker.levers import update_in_backward


class Owner:
    def __init__(self):
        self.model, self.calls = nn.Linear(4, 4), 0
        after_gradient(self.model.weight, self, Owner.called)

    def called(self) -> None:
        assert self.model.weight.grad is not None
        self.calls += 1

    def step(self) -> None:
        self.model(torch.ones(2, 4)).sum().backward()


def test_the_hook_runs_after_each_gradient():
    owner = Owner()
    owner.step()
    owner.step()
    assert owner.calls == 2


def in_backward() -> SimpleNamespace:
    model = nn.Linear(4, 4)
    owner = SimpleNamespace(model=model, own=update_in_backward(model))
    before = model.weight.detach().clone()
    model(torch.ones(2, 4)).sum().backward()
    assert model.weight.grad is None and not torch.equal(model.weight, before)
    return owner


def with_hook() -> Owner:
    owner = Owner()
    owner.step()
    return owner


@pytest.mark.parametrize("made", [with_hook, in_backward])
def test_the_model_is_freed_with_its_owner(made):
    owner = made()
    weight = weakref.ref(owner.model.weight)
    del owner
    gc.collect()
    assert weight() is None
