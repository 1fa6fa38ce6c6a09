"""Small experiments with numbers: sums in four combinations of dtypes, what autocast casts."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from labkit.engine.worker import Worker
from lessons.precision_memory.theory.floats import VALUE


def run_experiment(worker: Worker, point: SimpleNamespace) -> None:
    """Append the rows of the point's experiment."""
    {"sums": record_sums, "dtypes": record_dtypes}[point.experiment](worker, point)


def record_sums(worker: Worker, _point: SimpleNamespace) -> None:
    """Append a row per way: 0.01 a thousand times, as torch adds it on this device."""
    for way, (total, term) in {
        "float32 + float32": (torch.float32, torch.float32),
        "float16 + float16": (torch.float16, torch.float16),
        "float32 + float16": (torch.float32, torch.float16),
        "float32 + float32(float16)": (torch.float32, torch.float16),
        "bfloat16 + bfloat16": (torch.bfloat16, torch.bfloat16),
    }.items():
        held = torch.tensor(0.0, dtype=total, device=worker.device)
        value = torch.tensor(VALUE, dtype=term, device=worker.device)
        if "(" in way:
            value = value.to(torch.float32)
        for _ in range(worker.plan.steps):
            held += value
        worker.record(entry="sum", way=way, total=held.double().item())


def precision_context(device: torch.device, precision: str) -> Any:
    """Return autocast to float16 or bfloat16; for float32, a context that does nothing."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision))


class Toy(nn.Module):
    """The course's toy model: two matrices with a LayerNorm between them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32, bias=False)
        self.norm = nn.LayerNorm(32)
        self.last = nn.Linear(32, 8, bias=False)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        first = self.first(x)
        normed = self.norm(first.relu())
        logits = self.last(normed)
        return tensors_by_name(first, normed, logits, functional.cross_entropy(logits, labels))


def by_hand(model: Toy, x: torch.Tensor, labels: torch.Tensor, narrow: torch.dtype) -> dict[str, torch.Tensor]:
    """Return what Toy.forward makes, cast to `narrow` and back as autocast does it."""
    first = functional.linear(x.to(narrow), model.first.weight.to(narrow))
    in_norm = torch.float32 if x.is_cuda else narrow  # on a CPU autocast leaves a norm in its input's format
    normed = model.norm(first.relu().to(in_norm))
    logits = functional.linear(normed.to(narrow), model.last.weight.to(narrow))
    # Of cross-entropy's two steps, a GPU's autocast has only the second take float32.
    scores = functional.log_softmax(logits if x.is_cuda else logits.float(), -1)
    return tensors_by_name(first, normed, logits, functional.nll_loss(scores.float(), labels))


def tensors_by_name(first: torch.Tensor, normed: torch.Tensor, logits: torch.Tensor, loss: torch.Tensor) -> dict:
    return {"first layer's output": first, "LayerNorm's output": normed, "logits": logits, "loss": loss}


def record_dtypes(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row per tensor of the toy model's training step: its dtype under the point's precision.

    Then, of a narrow precision, one row of entry "by hand": whether `by_hand` gives the same tensors and gradients.
    """
    torch.manual_seed(point.seed)
    with worker.device:
        model = Toy()
        x, labels = torch.randn(4, 16), torch.arange(4)
    with precision_context(worker.device, point.precision):
        made = model(x, labels)
    made["loss"].backward()
    gradients: Any = [weight.grad for weight in model.parameters()]
    for what, tensor in {"parameters": model.first.weight, **made, "gradients": gradients[0]}.items():
        worker.record(entry="dtype", what=what, dtype=str(tensor.dtype).removeprefix("torch."))
    if point.precision != "float32":
        model.zero_grad()
        ours = by_hand(model, x, labels, getattr(torch, point.precision))
        ours["loss"].backward()
        our_gradients: Any = [weight.grad for weight in model.parameters()]
        pairs = zip([*ours.values(), *our_gradients], [*made.values(), *gradients], strict=True)
        same = all(our.dtype == other.dtype and torch.equal(our, other) for our, other in pairs)
        worker.record(entry="by hand", same=same)
