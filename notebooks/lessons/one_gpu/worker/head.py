"""The head's loss timed: by torch with all logits, in pieces, and as a student's function gives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.nn import functional

from labkit.engine.called_function import load_functions
from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.allocations import CountedMemory
from lessons.one_gpu.worker.pieces import head_loss

_SPREAD = 0.02  # of GPT-2's weights


def with_all_logits(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, _pieces: int) -> tuple:
    """Return loss, and the gradients of hidden (tokens, width) and head (words, width), by torch."""
    hidden, head = hidden.detach().requires_grad_(), head.detach().requires_grad_()
    loss = functional.cross_entropy(hidden @ head.T, targets)
    return loss.detach(), *torch.autograd.grad(loss, (hidden, head))


def time_head(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row a repeat, `ms`, and one of entry "head": the MiB that a call holds at most, beside its arguments."""
    plan = worker.plan
    ways: dict[str, Callable] = {"whole": with_all_logits, "pieces": head_loss}
    if point.way == "yours":
        ways |= {"yours": load_functions(Path(plan.yours), "head_loss")["head_loss"]}
    generator = torch.Generator().manual_seed(point.seed)
    dtype = torch.bfloat16 if worker.device.type == "cuda" else torch.float32
    hidden = torch.randn(plan.tokens, plan.hidden, generator=generator).to(worker.device, dtype)
    head = torch.randn(plan.words, plan.hidden, generator=generator).mul_(_SPREAD).to(worker.device, dtype)
    targets = torch.randint(plan.words, (plan.tokens,), generator=generator).to(worker.device)

    def work() -> object:
        return ways[point.way](hidden, head, targets, point.pieces)

    for timing in worker.time(work):
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, ms=1e3 * timing.seconds)
        timing.result = None
    worker.record(entry="head", peak_mib=_peak_bytes(worker, work) / MIB)


def _peak_bytes(worker: Worker, work: Callable[[], object]) -> int:
    if worker.device.type != "cuda":
        with CountedMemory() as counted:
            work()
        return counted.peak
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    worker.synchronize()
    return torch.cuda.max_memory_allocated() - before
