"""A pipeline beside the whole model on one device, right or with one of the lab's bugs in it."""

from __future__ import annotations

import torch
import torch.distributed as dist

from labkit.engine.worker import Worker
from labkit.labs.pipeline import bugs
from labkit.labs.pipeline.worker.pipe import Pipe, cut, data
from labkit.worker.bert import Stage, loss_of
from labkit.worker.clocks import fence


def compare(worker: Worker, point, group: dist.ProcessGroup | None) -> None:
    """Append one row a rank: how far outputs, loss and gradients are from the unpipelined model's, and what it holds.

    `output_error` and `loss_error` (last rank) and `gradient_error` are the largest difference over the largest value.
    `gradient_ratio` is the median of gradient over right gradient: 1, unless gradients are scaled wrongly. `parameters`
    counts what the rank holds, `all_parameters` the whole model. `claimed_ms` is what the variant's own clock says.
    """
    variant = bugs.VARIANTS[point.variant]
    whole = Stage(
        worker.plan, range(worker.plan.layers), point.seed, worker.device, point.precision, first=True, last=True
    )
    tokens, labels = data(worker.plan, point.seed, worker.device)
    right = whole(tokens)
    right_loss = loss_of(right, labels)
    right_loss.backward()
    pipe = Pipe(worker, point, group, cutting=variant.get("cutting", cut), scale_grads=variant.get("scale_grads", True))
    outputs, losses = pipe.run(keep_outputs=True)
    row = gradients(pipe, whole) if pipe.training else {}
    if pipe.last:
        row["output_error"] = error(outputs, right)
    if losses:
        row["loss"] = torch.stack(losses).mean()
        row["loss_error"] = error(row["loss"], right_loss)
    row["parameters"] = sum(weight.numel() for module in pipe.modules.values() for weight in module.parameters())
    row["all_parameters"] = sum(weight.numel() for weight in whole.parameters())
    del whole
    clock = variant.get("clock", lambda step, worker: step())
    often = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
    for timing in worker.time(lambda: clock(pipe.step, worker), **often, before=lambda: fence(group)):
        own = {} if not isinstance(timing.result, float) else {"claimed_ms": 1e3 * timing.result}
        worker.record(iteration=timing.iteration, warm_up=timing.warm_up, step_ms=1e3 * timing.seconds, **row, **own)


def gradients(pipe: Pipe, whole: Stage) -> dict[str, float]:
    """Compare the gradients of this rank's stages with the whole model's, part by part."""
    errors, ratios, right = [], [], whole.parts()
    for module in pipe.modules.values():
        for name, part in module.parts().items():
            mine = torch.cat([weight.grad.flatten() for weight in part.parameters()])
            theirs = torch.cat([weight.grad.flatten() for weight in right[name].parameters()])
            large = theirs.abs() > theirs.abs().max() / 10
            errors.append(error(mine, theirs))
            ratios.append((mine[large] / theirs[large]).median().item())
    return {"gradient_error": max(errors), "gradient_ratio": sorted(ratios)[len(ratios) // 2]}


def error(value: torch.Tensor, right: torch.Tensor) -> float:
    """Give the largest difference, as a share of the largest right value."""
    return ((value - right).abs().max() / right.abs().max()).item()
