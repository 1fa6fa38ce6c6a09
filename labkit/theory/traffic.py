"""What a training step sends: collectives, calls and bytes by strategy, from the parameters' shapes alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from labkit.theory.shapes import Model, Shape, shard
from labkit.theory.sizes import MIB

FIRST_BUCKET, BUCKET = MIB, 25 * MIB  # bytes: DistributedDataParallel's defaults


class Sent(NamedTuple):
    """One kind of collective in a step: how often it is called, and the bytes of its whole tensor over all calls."""

    collective: str
    calls: int
    bytes: int


def bucket_count(
    shapes: tuple[Shape, ...], element_bytes: int = 4, cap: int = BUCKET, first: int = FIRST_BUCKET
) -> int:
    """Return into how many buckets DistributedDataParallel puts the gradients of these parameters.

    The last parameter's gradient is ready first, so buckets fill from the end; one is closed once it holds its cap.
    The first is small, so that sending starts early (Li and others, "PyTorch Distributed", VLDB 2020).
    """
    count, held, room = 0, 0, first
    for shape in reversed(shapes):
        held += math.prod(shape) * element_bytes
        if held >= room:
            count, held, room = count + 1, 0, cap
    return count + (held > 0)


def traffic(
    model: Model, strategy: str, ranks: int, *, element_bytes: int = 4, synced: int = 1, micro_batches: int = 1
) -> list[Sent]:
    """Return what one rank calls in a step of `micro_batches`, of which `synced` exchange their gradients.

    Sharded strategies gather the parameters of a group (a block, or the root's) before its forward. "fsdp_full" lets a
    block's go after forward and gathers them again in backward; "fsdp_grad" keeps them all, and so does the root in any
    case, until its gradients have been exchanged. Gradients are reduced and scattered, a call a group.
    """
    if strategy == "single" or (ranks == 1 and strategy == "ddp"):
        return []
    if strategy == "ddp":
        sent = [
            Sent(
                "all-reduce",
                synced * bucket_count(model.shapes, element_bytes),
                synced * model.parameters * element_bytes,
            )
        ]
        return sent + ([Sent("broadcast", synced, synced * model.buffers_bytes)] if model.buffers_bytes else [])
    whole = element_bytes * ranks
    root, block = shard(model.root, ranks) * whole, shard(model.block, ranks) * whole
    if strategy == "fsdp_root":
        everything = shard(model.shapes, ranks) * whole
        return _sharded(micro_batches, micro_batches * everything, synced, synced * everything)
    passes = 2 if strategy == "fsdp_full" else 1
    groups, everything = model.blocks + 1, model.blocks * block + root
    return _sharded(
        micro_batches * (passes * model.blocks + 1),
        micro_batches * (passes * model.blocks * block + root),
        synced * groups,
        synced * everything,
    )


def _sharded(gathers: int, gathered: int, scatters: int, scattered: int) -> list[Sent]:
    return [Sent("all-gather", gathers, gathered), Sent("reduce-scatter", scatters, scattered)]


def ring_bytes(whole_bytes: Any, ranks: Any) -> Any:
    """Return the bytes that each rank sends in a ring's all-reduce, 2(N−1)/N of the tensor: numbers or columns."""
    return 2 * (ranks - 1) / ranks * whole_bytes


def through_a_link(sent: list[Sent], ranks: int) -> float:
    """Return the bytes that each GPU sends in a ring (nccl-tests, doc/PERFORMANCE.md).

    2(N−1)/N of an all-reduce, all of a broadcast, (N−1)/N of the others.
    """
    share = {"all-reduce": ring_bytes(1, ranks), "broadcast": 1.0}
    return sum(share.get(call.collective, (ranks - 1) / ranks) * call.bytes for call in sent)
