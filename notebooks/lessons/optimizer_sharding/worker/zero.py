"""ZeRO's first stage: the sharded optimizer that also scatters the gradients, each rank its part of their mean."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from lessons.optimizer_sharding.worker.sharded import Bucket, ShardedOptimizer


class ZeroOptimizer(ShardedOptimizer):
    """As ShardedOptimizer, but each rank comes with the gradients of its own samples: `step` averages them, too.

    Ranks have gradients of the same parameters; one that has none is not updated.
    """

    def flat_gradient(self, bucket: Bucket) -> torch.Tensor:
        """Return this rank's gradients of a bucket, laid out as `bucket.flat` is; zeros where there is none."""
        flat = torch.zeros_like(bucket.flat)
        for at, parameter in zip(bucket.places(), bucket.parameters, strict=True):
            if parameter.grad is not None:
                flat[at : at + parameter.numel()] = parameter.grad.flatten()
        return flat

    def update_part(self, bucket: Bucket, mean: torch.Tensor) -> None:
        """Have the bucket's optimizer update this rank's part with its mean gradient, `bucket.end − bucket.begin` long.

        Raises ValueError for another length.
        """
        if mean.shape != (bucket.end - bucket.begin,):
            part = f"{bucket.end - bucket.begin} numbers, this rank's part of the mean"
            raise ValueError(f"update_part takes {part}, and got a tensor of shape {(*mean.shape,)}")
        for piece in bucket.pieces:
            at = piece.own.storage_offset() - bucket.begin
            piece.own.grad = None if piece.parameter.grad is None else mean[at : at + piece.own.numel()]
        self.run(bucket)

    def update_all(self) -> None:
        """Scatter each bucket's gradients, update this rank's part, and gather the bucket while the next is updated."""
        sent = []
        for bucket in self.buckets:
            mean = bucket.flat.new_empty(bucket.end - bucket.begin)
            dist.reduce_scatter_tensor(mean, self.flat_gradient(bucket) / self.ranks, group=self.process_group)
            self.update_part(bucket, mean)
            sent.append(self.send(bucket, bucket.flat))
        for work in sent:
            work.wait()


def with_update_all(update_all: Callable) -> type[ZeroOptimizer]:
    """Return the class whose method `update_all` this one replaces."""
    return type("Yours", (ZeroOptimizer,), {"update_all": update_all})


def with_momentum_step(momentum_step: Callable) -> type[ZeroOptimizer]:
    """Return a class that calls this function for each bucket; it is for SGD with momentum and constant rates."""

    momenta: dict[Bucket, torch.Tensor] = {}

    def update_all(self: ZeroOptimizer) -> None:
        for bucket in self.buckets:
            gradient, momentum = self.flat_gradient(bucket), momenta.get(bucket, 0.0)
            rates = (self.param_groups[bucket.group][name] for name in ("lr", "momentum"))
            momenta[bucket] = momentum_step(bucket.flat, gradient, momentum, self.process_group, *rates)

    return with_update_all(update_all)
