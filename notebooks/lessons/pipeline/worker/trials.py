"""A trial of a pipeline against the unpipelined model."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.engine.worker import Worker
from labkit.worker.bert import Stage, loss_of
from labkit.worker.clocks import fence
from lessons.pipeline.plan import BY_HAND
from lessons.pipeline.worker.pipe import HandPipe, Pipe, layers_of_stages


def dropped_layer(sizes: list[int]) -> list[range]:
    parts, first = [], 0
    for size in sizes:
        parts.append(range(first, first + size))
        first += size
    return [*parts[:-1], range(parts[-1].start + 1, parts[-1].stop)]


def first_rank_clock(step: Callable[[], object], worker: Any) -> float | None:
    start = time.perf_counter()
    step()
    worker.synchronize()
    return time.perf_counter() - start if worker.rank == 0 else None


# A variant replaces one piece of the pipeline: `cutting` (split sizes → the layers of each stage), `scale_grads`, or
# `clock` (how it takes its time).
BUGS = {
    "right": {},
    "unscaled": {"scale_grads": False},
    "dropped_layer": {"cutting": dropped_layer},
    "first_rank_clock": {"clock": first_rank_clock},
}


def try_variant(worker: Worker, point: SimpleNamespace, groups: tuple[dist.ProcessGroup | None, ...]) -> None:
    """Append one row a rank: how far outputs, loss and gradients are from the unpipelined model's, and what it holds.

    `output_error` and `loss_error` (last rank) and `gradient_error` are the largest difference over the largest value.
    `gradient_ratio` is the median of gradient over right gradient: 1, unless gradients are scaled wrongly. `parameters`
    counts what the rank holds, `all_parameters` the whole model. `step_ms` ends when the last rank is done,
    `claimed_ms` when the variant's own clock says so.
    """
    variant = BUGS.get(point.variant, {})
    whole = Stage(
        worker.plan, range(worker.plan.layers), point.seed, worker.device, point.precision, first=True, last=True
    )
    pipe = (HandPipe if point.variant == BY_HAND else Pipe)(
        worker,
        point,
        groups,
        cutting=variant.get("cutting", layers_of_stages),
        scale_grads=variant.get("scale_grads", True),
    )
    right_outputs = whole(pipe.tokens)
    right_loss = loss_of(right_outputs, pipe.labels)
    right_loss.backward()
    outputs, losses = pipe.run(keep_outputs=True)
    row: dict[str, Any] = _gradients(pipe, whole) if pipe.training else {}
    if pipe.last and outputs is not None:
        row["output_error"] = _error(outputs, right_outputs)
    if losses:
        row["loss"] = torch.stack(losses).mean()
        row["loss_error"] = _error(row["loss"], right_loss)
    row["parameters"] = sum(weight.numel() for module in pipe.modules.values() for weight in module.parameters())
    row["all_parameters"] = sum(weight.numel() for weight in whole.parameters())
    del whole
    clock = variant.get("clock", lambda step, worker: step())

    def step_of_all() -> float | None:
        claimed_s = clock(pipe.step, worker)
        worker.synchronize()
        fence(groups[0])  # each rank times the step until the last one is done, whoever began it late
        return claimed_s

    for timing in worker.time(step_of_all, before=lambda: fence(groups[0])):
        claim = {} if not isinstance(timing.result, float) else {"claimed_ms": 1e3 * timing.result}
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, step_ms=1e3 * timing.seconds, **row, **claim)


def _gradient_of(part: nn.Module) -> torch.Tensor:
    """Return all gradients of a part as one vector; a weight that has none counts as zero."""
    grads = (torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in part.parameters())
    return torch.cat([grad.flatten() for grad in grads])


def _gradients(pipe: Pipe, whole: Stage) -> dict[str, float]:
    """Compare the gradients of this rank's stages with the whole model's, part by part."""
    errors, ratios, right = [], [], whole.parts()
    for module in pipe.modules.values():
        for name, part in module.parts().items():
            ours = _gradient_of(part)
            expected = _gradient_of(right[name])
            large = expected.abs() > expected.abs().max() / 10
            errors.append(_error(ours, expected))
            ratios.append((ours[large] / expected[large]).median().item())
    return {"gradient_error": max(errors), "gradient_ratio": sorted(ratios)[len(ratios) // 2]}


def _error(value: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest difference, as a share of the largest right value."""
    return ((value - right).abs().max() / right.abs().max()).item()
