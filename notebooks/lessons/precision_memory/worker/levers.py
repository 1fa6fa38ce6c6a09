"""What lowers a step's peak: checkpoints, smaller weights, an update inside backward, the host's memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.allocations import Meter
from labkit.worker.strategies import after_gradient
from lessons.precision_memory.theory.memory import LEVERS
from lessons.precision_memory.worker.checkpoints import run_blocks
from lessons.precision_memory.worker.memory import Training, adamw
from lessons.precision_memory.worker.numbers import precision_context

_LEAST_MOVED = MIB  # bytes of an activation that is worth a copy to the host
# What the selective checkpoint keeps: results of matrix products and of attention, by every backend's name for it.
_DEAR = ("mm", "addmm", "bmm", "_scaled_dot_product")


def measure_lever(worker: Worker, point: SimpleNamespace) -> None:
    """Append the peak of a steady step under the point's lever (entry="memory"), and its time (entry="step")."""
    with Meter(worker) as meter:
        training = TrainingWithLever(worker, point)
        for _ in range(2):
            training.step()
        meter.reset()
        training.step()
        worker.record(entry="memory", peak_mib=meter.peak_bytes() / MIB)
    for timing in worker.time(training.step):
        row = {"iteration": timing.iteration, "warm_up": timing.warm_up, "step_ms": 1e3 * timing.seconds}
        worker.record(entry="step", **row, loss=timing.result)


class TrainingWithLever(Training):
    """Training with what one lever of LEVERS changes."""

    def __init__(self, worker: Worker, point: SimpleNamespace):
        self.options: dict[str, Any] = LEVERS[point.lever]
        super().__init__(worker, SimpleNamespace(**vars(point), update=self.options.get("update", "fused")))
        if self.options.get("weights") == "bfloat16":
            self.model.to(torch.bfloat16)
            self.precision = "float32"  # no autocast: the weights say how to multiply
        if "by" in self.options:
            yours = self.options["by"] == "yours"
            run = load_function(Path(worker.plan.yours), "run_blocks") if yours else run_blocks
            autocast = functools.partial(precision_context, worker.device, self.precision)
            stack: Any = BlocksRunBy(run, self.model.blocks, self.options["checkpoint"], autocast)
            self.model.blocks = nn.ModuleList([stack])
        elif "checkpoint" in self.options:
            place_checkpoints(self.model, self.options["checkpoint"], self.options.get("selective", False))
        if self.options.get("in_backward"):
            self.own = update_in_backward(self.model)

    def forward(self) -> torch.Tensor:
        if not self.options.get("offload"):
            return super().forward()
        with ToHost(self.model):
            return super().forward()

    def update(self) -> None:
        if self.options.get("in_backward"):
            return
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.options.get("set_to_none", True))


class BlocksRunBy(nn.Module):
    """All blocks of a model as one module, which a `run_blocks` runs.

    Each block brings its own autocast: in backward, the one of the step is closed.
    """

    def __init__(self, run: Callable, blocks: nn.ModuleList, every: int, autocast: Callable):
        super().__init__()
        self.run, self.blocks, self.every, self.autocast = run, blocks, every, autocast

    def forward(self, hidden: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        def run_one(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
            with self.autocast():
                return block(x, turn)

        return self.run([functools.partial(run_one, block) for block in self.blocks], hidden, self.every)


def place_checkpoints(model: nn.Module, every: int, is_selective: bool = False) -> None:
    """Have one block of `every` keep its input only, and be computed again in backward.

    The selective checkpoint keeps the results of matrix products and attention, too: only cheap work is repeated.
    """
    blocks: Any = model.blocks
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if is_selective:
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, selective_policy)
    for number, block in enumerate(blocks):
        if number % every == 0:
            block.forward = functools.partial(checkpoint, block.forward, **options)


def selective_policy(_context: Any, function: Any, *_arguments: Any, **_named: Any) -> CheckpointPolicy:
    name = function.overloadpacket.__name__
    dear = name in _DEAR or name.startswith(_DEAR[-1])
    return CheckpointPolicy.MUST_SAVE if dear else CheckpointPolicy.PREFER_RECOMPUTE


def update_in_backward(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Have each parameter updated as soon as its gradient is complete, and the gradient freed.

    Returns the optimizers, one per parameter: updates happen as long as they are kept.
    """

    def update(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        optimizer.zero_grad()

    optimizers = []
    for parameter in model.parameters():
        optimizers.append(adamw([parameter], "fused"))
        after_gradient(parameter, optimizers[-1], update)
    return optimizers


class ToHost(torch.autograd.graph.saved_tensors_hooks):
    """Moves what forward keeps to the host's pinned memory, and back when backward needs it; weights stay.

    The copies run in the compute stream: nothing hides them.
    """

    def __init__(self, model: nn.Module):
        self.weights = {frozenset(weight.shape) for weight in model.parameters() if weight.dim() == 2}
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor) -> Any:
        whole = tensor if tensor._base is None else tensor._base
        weight = isinstance(whole, nn.Parameter) or (whole.dim() == 2 and frozenset(whole.shape) in self.weights)
        if weight or tensor.device.type != "cuda" or tensor.nbytes < _LEAST_MOVED:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return tensor.device, host.copy_(tensor, non_blocking=True)

    def _unpack(self, packed: Any) -> torch.Tensor:
        return packed if torch.is_tensor(packed) else packed[1].to(packed[0], non_blocking=True)
