"""Sharded training compared with one process that sees all samples: in awkward cases, and with one bug each."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from labkit.engine.called_function import load_functions
from labkit.engine.worker import Worker
from labkit.worker.equality import LEARNING_RATE, mean_over_ranks
from lessons.fsdp_from_scratch.worker.probe import MOST, Probe, backward_on_rank, samples_of, sharded_probe
from lessons.fsdp_from_scratch.worker.tried import yours
from lessons.fsdp_from_scratch.worker.units import FlatWeights, FullySharded, FullyShardedUnit


def compare(worker: Worker, point: SimpleNamespace) -> None:
    """Append a row that compares steps of a sharded model with the same steps in one process.

    `loss_error`, `norm_error` (of the gradients' length before it is clipped) and `weight_error` (after the last step)
    are relative, the largest of all steps; `held_bytes`: gathered weights that are still there when a step has ended.
    """
    case = point.case
    options: Any = VARIANTS[getattr(point, "variant", "right")]
    if file := worker.plan.clip:
        options = yours(load_functions(Path(file), "clip"))
    model = sharded_probe(case, worker.rank, point.seed, worker.device, **options)
    reference: Any = Probe(case, 0, point.seed).to(worker.device)
    optimizers = [torch.optim.SGD(each, lr=LEARNING_RATE) for each in (model.shards, reference.parameters())]
    loss_errors, norm_errors, held = [], [], 0
    for step in range(worker.plan.steps):
        parts: Any = [samples_of(rank, point.seed, step) for rank in range(worker.gpus)]
        parts = [[each.to(worker.device) for each in part] for part in parts]
        loss = mean_over_ranks(torch.tensor(backward_on_rank(model, case, parts[worker.rank])), None)
        right: torch.Tensor = reference(*(torch.cat(each) for each in zip(*parts, strict=True)))
        right.backward()
        length, right_length = model.clip(MOST), torch.nn.utils.clip_grad_norm_(reference.parameters(), MOST)
        loss_errors.append(abs(loss / right.item() - 1))
        norm_errors.append((length / right_length - 1).abs().item())
        held += sum(flat.whole.untyped_storage().nbytes() for flat in model.flats)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    mine, due = (torch.cat([weight.flatten() for weight in each]) for each in (model.whole(), reference.parameters()))
    worker.record(
        entry="equality",
        iteration=0,
        loss_error=max(loss_errors),
        norm_error=max(norm_errors),
        weight_error=((mine.float() - due).norm() / due.norm()).item(),
        held_bytes=held,
    )


class AveragedTwice(FullySharded):
    """Divides the gradients by the number of ranks before it averages them."""

    def scatter_mean(self, part: torch.Tensor, whole: torch.Tensor) -> Any:
        return super().scatter_mean(part, whole.div_(self.flats[0].ranks))


class NotGathered(FullyShardedUnit):
    """Has memory for the weights again in backward, and only its own part in it."""

    def backward_begins(self) -> None:
        for flat in self.flats:
            if flat.whole.untyped_storage().nbytes() == 0:
                flat.whole.untyped_storage().resize_(flat.bytes)
                flat.whole.zero_().chunk(flat.ranks)[torch.distributed.get_rank()].copy_(flat.shard.detach())


class DirtyPadding(FullyShardedUnit):
    """Joins gradients in memory that it does not clear: whatever stood there is the padding's gradient."""

    def backward_ends(self) -> None:
        for flat in self.trained:
            flat.joined = lambda tensors, flat=flat: _dirty(FlatWeights.joined(flat, tensors), flat.padding)
        super().backward_ends()


def _dirty(joined: torch.Tensor, padding: int) -> torch.Tensor:
    joined[len(joined) - padding :] = 1.0
    return joined


VARIANTS: dict[str, dict[str, Any]] = {
    "right": {},
    "averaged_twice": {"sharded": AveragedTwice},
    "not_gathered": {"unit": NotGathered, "prefetch": 0},
    "padding_counts": {"unit": DirtyPadding},
}
