"""Lab 08, what the worker does: runs an attention, times it, weighs it, and compares it with float64."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

if not torch.cuda.is_available():  # before anything imports Triton: its interpreter then runs the kernels
    os.environ.setdefault("TRITON_INTERPRET", "1")

import torch._dynamo  # autograd's functions import it: here it is loaded once, not by every worker of every launch

from labkit.engine.worker import Worker
from labkit.worker.clocks import summary
from lessons.attention.plan import Errors, Memory, Plain, Trial
from lessons.attention.worker.implementations import ATTENTIONS, implementation
from lessons.attention.worker.measuring import (
    OperatorWatch,
    graph_times_ms,
    kept_bytes,
    launch_times_ms,
    peak_sizes_mib,
    unsynchronised_ms,
)
from lessons.attention.worker.plain import exact

_PROBE = 64  # queries and keys whose probabilities are looked at


def prepare(worker: Worker) -> None:
    """Have float32 products keep all their bits: no TF32 unless a kernel says so."""
    torch.backends.cuda.matmul.allow_tf32 = False


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point.

    What torch keeps for tensors to come is given back before: Triton's kernels need memory of the driver, too.
    """
    torch.cuda.empty_cache()
    if isinstance(worker.plan, Errors):
        worker.record(**errors(point, worker.device, worker.plan.yours))
    elif isinstance(worker.plan, Trial):
        worker.record(**symptoms(point, worker.device))
    else:
        _measure(worker, point)


def _measure(worker: Worker, point: SimpleNamespace) -> None:
    work = Work(worker, point)
    if isinstance(worker.plan, Memory):
        work.record_memory()
    elif getattr(point, "clock", "launched") == "captured":
        work.time_captured()
    else:
        if isinstance(worker.plan, Plain):
            work.record_memory()
        work.time()


class Work:
    """One attention on one set of tensors: what there is to measure of it."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        plan: Any = worker.plan
        generator = torch.Generator(worker.device).manual_seed(point.seed)
        shape = (1, point.heads, point.sequence, point.head_dim)
        form = {"generator": generator, "dtype": getattr(torch, point.precision), "device": worker.device}
        self.inputs: Any = tuple(torch.randn(shape, **form).requires_grad_() for _ in range(3))
        self.do = torch.randn(shape, **form)
        self.attention = implementation(point.implementation, plan.yours)
        self.worker, self.point, self.repeat_ms = worker, point, plan.repeat_ms

    def forward(self) -> torch.Tensor:
        return self.attention(*self.inputs, self.point.causal)

    def both(self) -> None:
        torch.autograd.grad(self.forward(), self.inputs, self.do)

    def time(self) -> None:
        """Record each phase's time; the phases before one that runs out of memory are kept."""
        self._record("forward", self.forward)
        if isinstance(self.worker.plan, Plain):
            self.worker.record(phase="unsynchronised", ms=unsynchronised_ms(self.worker, self.forward))
        self._record("backward", self._backward())
        self._record("both", self.both)

    def time_captured(self) -> None:
        """Record forward and both as a CUDA graph replays them; tiles are chosen before, outside of it."""
        self.both()
        with torch.no_grad():
            times = graph_times_ms(self.forward)
        self.worker.record(phase="forward", **summary(times, "ms"))

        def both() -> None:  # leaves of its own: a graph may not depend on a stream outside
            leaves = tuple(x.detach().requires_grad_() for x in self.inputs)
            torch.autograd.grad(self.attention(*leaves, self.point.causal), leaves, self.do)

        self.worker.record(phase="both", **summary(graph_times_ms(both), "ms"))

    def record_memory(self) -> None:
        """Record what is kept for backward, and the memory there is at most.

        A compiled graph does not say what it keeps; the memory held after its forward does. Ours runs once before:
        choosing tiles takes memory, too.
        """
        if self.point.implementation == "flash" and self.worker.device.type == "cuda":
            self.both()
        memory = {} if self.point.implementation == "compiled" else {"kept_bytes": kept_bytes(self.forward)}
        self.worker.record(phase="memory", **memory | peak_sizes_mib(self.worker, self.forward, self.do, self.inputs))

    def _backward(self) -> Callable[[], object]:
        o = self.forward()
        return lambda: torch.autograd.grad(o, self.inputs, self.do, retain_graph=True)

    def _record(self, phase: str, work: Callable[[], object]) -> None:
        self.worker.record(phase=phase, **summary(launch_times_ms(self.worker, work, self.repeat_ms), "ms"))


TENSORS = ("O", "L", "dQ", "dK", "dV")


def scaled_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the largest |found − wanted| / (1 + |wanted|): the least t at which allclose(rtol=t, atol=t) holds."""
    return ((found.double() - wanted).abs() / (1 + wanted.abs())).max().item()


def row_lse(o: torch.Tensor, q: torch.Tensor) -> torch.Tensor | None:
    """Return the row log-sum-exp (…, Nq), the last tensor that attention saves for backward; None if it saves none.

    The shape alone does not tell: with one key and Nq = d, K and V saved as (heads, 1, d) may have it, too.
    """
    saved = getattr(o.grad_fn, "saved_tensors", ())
    return saved[-1] if saved and saved[-1] is not None and saved[-1].shape == q.shape[:-1] else None


def outputs_and_gradients(attention: Callable, q, k, v, do, causal: bool) -> dict[str, torch.Tensor]:
    """Return O, L (where it was kept) and the gradients."""
    o = attention(q, k, v, causal)
    lse = row_lse(o, q)
    outputs = {"O": o.detach()} | ({} if lse is None else {"L": lse})
    return outputs | dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(o, (q, k, v), do), strict=True))


def errors(point: SimpleNamespace, device: torch.device, yours: str = "") -> dict:
    """Return the error of each tensor, and whether a second run gives the same bits. `yours`: a student's file."""
    q, k, v, do = _tensors(point, point.queries, point.keys, device)
    first, second = (
        outputs_and_gradients(implementation(point.implementation, yours), q, k, v, do, point.causal) for _ in range(2)
    )
    wanted = exact(q, k, v, do, point.causal)
    same = all(torch.equal(first[name], second[name]) for name in first)
    return {f"{name}_error": scaled_error(first[name], wanted[name]) for name in first} | {"same_bits": same}


def symptoms(point: SimpleNamespace, device: torch.device) -> dict:
    """Return what one variant shows.

    `all_error`, `causal_error`, `gradient_error`: the worst without and with a mask, and of gradients with one.
    `sees_ahead`: how many keys after its own a query attends to at most, with a mask. `early_weight`: the most that a
    probability is too large, times. `backward_largest`: the largest tensor that torch makes, in N×N matrices.
    """
    attention = ATTENTIONS[point.variant]
    q, k, v, do = _tensors(point, point.sequence, point.sequence, device)
    full, causal = (outputs_and_gradients(attention, q, k, v, do, mask) for mask in (False, True))
    wanted, wanted_causal = (exact(q, k, v, do, mask) for mask in (False, True))
    square = point.heads * point.sequence**2 * q.element_size()
    o = attention(q, k, v, True)
    with OperatorWatch() as backward:
        torch.autograd.grad(o, (q, k, v), do)
    ahead, early = _mask_readings(attention, device, point.seed)
    return {
        "all_error": scaled_error(full["O"], wanted["O"]),
        "causal_error": scaled_error(causal["O"], wanted_causal["O"]),
        "gradient_error": max(scaled_error(causal[name], wanted_causal[name]) for name in ("dQ", "dK", "dV")),
        "sees_ahead": ahead,
        "early_weight": early,
        "backward_largest": backward.largest / square,
    }


def _mask_readings(attention: Callable, device: torch.device, seed: int) -> tuple[int, float]:
    """Return how far ahead queries see under a mask, and the largest excess of a probability without one.

    With V the identity, O is the matrix of probabilities itself.
    """
    generator = torch.Generator(device).manual_seed(seed)
    q, k = (torch.randn(1, _PROBE, _PROBE, generator=generator, device=device) for _ in range(2))
    v = torch.eye(_PROBE, device=device)[None].contiguous()
    rows, columns = (attention(q, k, v, True)[0] > 0).nonzero(as_tuple=True)
    wanted = exact(q, k, v, torch.ones_like(v))["O"]
    return int((columns - rows).max()), (attention(q, k, v, False).double() / wanted).max().item()


def _tensors(point: SimpleNamespace, queries: int, keys: int, device: torch.device) -> list[torch.Tensor]:
    """Return Q, K, V that want gradients, and dO."""
    generator = torch.Generator(device).manual_seed(point.seed)
    form = {"generator": generator, "dtype": getattr(torch, point.precision), "device": device}
    lengths = (queries, keys, keys, queries)
    q, k, v, do = (torch.randn(point.heads, n, point.head_dim, **form) for n in lengths)
    return [*(x.requires_grad_() for x in (q, k, v)), do]
