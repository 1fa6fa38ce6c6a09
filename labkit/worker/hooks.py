"""Hooks on parameters that do not keep their model."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Owner = TypeVar("Owner")


def after_gradient(weight: torch.Tensor, owner: Owner, action: Callable[[Owner], Any]) -> None:
    """Call `action(owner)` after each backward pass has completed the weight's gradient, while the owner lives.

    Tensor.register_post_accumulate_grad_hook keeps its function where Python's garbage collector does not look. A
    function that holds the model, through its owner or an optimizer, therefore keeps the model's memory for ever.
    """
    held = weakref.ref(owner)

    def call(_weight: torch.Tensor) -> None:
        if (living := held()) is not None:
            action(living)

    weight.register_post_accumulate_grad_hook(call)
