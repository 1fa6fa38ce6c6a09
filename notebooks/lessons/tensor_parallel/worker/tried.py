"""Functions that somebody wrote, in their place in the split layers, tried on some ranks: what they give and send.

Imports nothing of labkit but a counter: it also runs where an answer is graded.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from labkit.worker.collectives import ListCounter
from lessons.tensor_parallel.worker.layers import ColumnParallel, Ranks, RowParallel

ROW = ("forward", "enter_backward")
_WIDTH, _INNER, _WORDS = 6, 24, 24


def yours(methods: dict[str, Callable]) -> dict[str, type]:
    """Return the classes with these methods in place of theirs."""
    row = type("YourRow", (RowParallel,), {"forward": methods["forward"]})
    return {"row": row, "ranks": type("YourRanks", (Ranks,), {"enter_backward": methods["enter_backward"]})}


def drive(answer: Any, world: SimpleNamespace, ranks: int, hole: str, case: str, seed: int) -> dict[str, Any]:
    """Return what the answer gives on this rank: `value`, gradients and the `calls` that it made (names and bytes)."""
    return _drive_row(answer, world, case, seed) if hole == "row" else _drive_loss(answer, world, case, seed)


def _drive_row(answer: dict[str, Callable], world: SimpleNamespace, case: str, seed: int) -> dict[str, Any]:
    """Run a small perceptron, column-parallel and then row-parallel, forward and backward."""
    generator = torch.Generator().manual_seed(seed)
    classes = yours(answer)
    shared = classes["ranks"](world.group, sequence="sequence" in case)
    layers = [nn.Linear(_WIDTH, _INNER), nn.Linear(_INNER, _WIDTH, bias="biased" in case)]
    for layer in layers:
        for weight in layer.parameters():
            weight.data = torch.randn(weight.shape, generator=generator)
    first, second = ColumnParallel(shared, layers[0]), classes["row"](shared, layers[1])
    whole = torch.randn(2, 12, _WIDTH, generator=generator)
    x = (whole.chunk(shared.count, 1)[shared.rank] if shared.sequence else whole).clone().requires_grad_()
    with ListCounter() as sent:
        (inside,) = first(x)
        y = second(torch.relu(inside))
        if y.requires_grad:
            (y * torch.arange(1.0, y.numel() + 1).view_as(y)).sum().backward()
    weights = [first.weights[0], second.weight, *([second.bias] if second.bias is not None else [])]
    gradients = [None if weight.grad is None else weight.grad.flatten().tolist() for weight in weights]
    bias = [] if second.bias is None else second.bias.tolist()
    given = {"value": y.flatten().tolist(), "bias": bias, "weights": gradients, "calls": sent.each}
    return given | {"input": None if x.grad is None else x.grad.flatten().tolist()}


def _drive_loss(answer: Callable, world: SimpleNamespace, case: str, seed: int) -> dict[str, Any]:
    """Call the loss on this rank's part of random logits, and its backward; a case "large" has logits about 1,000."""
    generator = torch.Generator().manual_seed(seed)
    ranks = Ranks(world.group)
    whole = 3 * torch.randn(2, 5, _WORDS, generator=generator) + (1000 if case == "large" else 0)
    targets = torch.randint(_WORDS, (2, 5), generator=generator)
    logits = whole.chunk(ranks.count, -1)[ranks.rank].clone().requires_grad_()
    with ListCounter() as sent:
        loss = answer(logits, targets, ranks)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return {"value": None, "gradient": None, "calls": []}
        if loss.requires_grad:
            loss.backward()
    gradient = None if logits.grad is None else logits.grad.flatten().tolist()
    return {"value": loss.item(), "gradient": gradient, "calls": sent.each}
