"""A sharded layer that notes what its functions send, wait for, keep and give; answers are graded with it, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from labkit.theory.traffic import Sent, through_a_link
from labkit.worker.collectives import CollectiveCounter, ListCounter, tensor_bytes
from lessons.ddp_fsdp.worker.sharded_layer import ShardedLayer

# Some of these are in newer versions of torch alone.
COLLECTIVES = (
    *("all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_to_all", "all_to_all_single"),
    *("barrier", "broadcast", "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"),
    "scatter",
)
ROOTED = ("gather", "scatter")  # one rank gives or takes more than the others
LONGEST_CALL = 80  # characters
TO_ONE_RANK = ("send", "recv", "isend", "irecv")


class NoRoom(Exception):
    """After `gather`, `whole` has no memory: computing with it would end the process."""


class WatchedLayer(ShardedLayer):
    """Runs the functions of the class behind it, and notes the largest of each thing that it looks at."""

    notes: ClassVar[dict[str, float]]
    right: torch.Tensor  # what `whole` must hold after a gather
    gathered: StorageWeakRef | None = None
    own_gradient: torch.Tensor  # of this rank's samples, before it was exchanged

    @property
    def whole_bytes(self) -> int:
        return self.shard.nbytes * self.ranks

    def note(self, name: str, value: float) -> None:
        self.notes[name] = max(self.notes[name], value if value == value else float("inf"))

    def gather(self) -> None:
        with self.watched("gather"):
            super().gather()
        storage = self.whole.untyped_storage()
        if storage.nbytes() < self.whole_bytes:
            raise NoRoom
        self.note("weights_error", relative_error(self.whole.detach(), self.right))
        self.gathered = StorageWeakRef(storage)

    def free(self) -> None:
        if has_memory(self.whole):
            self.whole.data.fill_(float("nan"))  # the same memory may come back with the next gather
        super().free()

    def scatter(self) -> None:
        gradient: Any = self.whole.grad
        self.own_gradient = gradient.clone()
        with self.watched("scatter"):
            super().scatter()
        self.note("gradient_left", self.whole.grad is not None)

    @contextmanager
    def watched(self, function: str) -> Iterator[None]:
        """Note what is sent inside, over the bytes that a ring sends of `whole`, and what is not waited for."""
        with ListCounter() as sent, watched_calls(sent, self.shard.device, self.group) as works:
            yield
        for work in works:
            if not work.waited:
                self.note(f"{function}_not_waited", 1)
                work.wait()
        needed = through_a_link([Sent("all-gather", 1, self.whole_bytes)], self.ranks)
        self.note(f"{function}_sent", sum(sent_bytes(*call, self.ranks) for call in sent.each) / needed)

    def note_kept(self, when: str) -> None:
        """Note whether the memory of the weights that were last gathered is still there."""
        storage = self.gathered and torch.UntypedStorage._new_with_weak_ptr(self.gathered.cdata)
        self.note(f"kept_after_{when}", bool(storage is not None and storage and storage.nbytes()))


def sent_bytes(collective: str, tensor_bytes: int, ranks: int) -> float:
    """Return the bytes that a rank sends in a call; a send to one rank is no ring."""
    if collective == "recv_":
        return 0.0
    return tensor_bytes if collective == "send" else through_a_link([Sent(collective, 1, tensor_bytes)], ranks)


class StartedWork:
    """A collective that was called with async_op=True; `waited` once something but its state was asked for."""

    def __init__(self, work: Any):
        self._work, self.waited = work, False

    def __getattr__(self, name: str) -> Any:
        self.waited |= name in ("wait", "get_future", "synchronize")
        return getattr(self._work, name)


@contextmanager
def watched_calls(
    sent: CollectiveCounter, device: torch.device, group: dist.ProcessGroup | None
) -> Iterator[list[StartedWork]]:
    """Note the collectives that go on after their call; refuse what would end a process or have ranks wait for ever.

    That is a tensor without memory, another group, and a collective that not all ranks call.
    """
    every: Any = dist.group.WORLD
    names = [name for name in (*COLLECTIVES, *TO_ONE_RANK) if hasattr(dist, name)]
    works, originals = [], {name: getattr(dist, name) for name in names}

    def watched(name: str, original: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if not all(map(has_memory, [*arguments, *named.values()])):
                fault = "a tensor whose memory is freed or too small: resize its storage first, in bytes"
                raise RuntimeError(f"{name} was given {fault}")
            groups = [given for given in (*arguments, *named.values()) if isinstance(given, dist.ProcessGroup)]
            if (groups or [every])[0] != (group or every):
                raise RuntimeError(f"{name} is called for ranks that have no such layer: pass `group=self.group`")
            size = tensor_bytes([*arguments, *named.values()])
            if name in COLLECTIVES:
                counted = len(sent.each)
                require_same_call(f"{name} with {size} bytes" if size and name not in ROOTED else name, device, group)
                del sent.each[counted:]
            if not hasattr(result := original(*arguments, **named), "wait"):
                return result
            works.append(StartedWork(result))
            return works[-1]

        return call

    for name, original in originals.items():
        setattr(dist, name, watched(name, original))
    try:
        yield works
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


def require_same_call(call: str, device: torch.device, group: dist.ProcessGroup | None) -> None:
    """Raise RuntimeError where another rank calls another collective at this place."""
    text = torch.tensor([*call.encode().ljust(LONGEST_CALL)], dtype=torch.uint8, device=device)
    texts = [torch.empty_like(text) for _ in range(dist.get_world_size(group))]
    dist.distributed_c10d.all_gather(texts, text, group=group)
    called = [bytes(each.tolist()).decode().strip() for each in texts]
    another = next((rank for rank, other in enumerate(called) if other != called[0]), None)
    if another is not None:
        calls = f"rank 0 calls {called[0]} where rank {another} calls {called[another]}"
        raise RuntimeError(f"{calls}: all ranks have to call the same collectives in the same order")


def has_memory(argument: Any) -> bool:
    """Return whether a tensor, or each in a list, has the memory of its elements."""
    if isinstance(argument, list | tuple):
        return all(map(has_memory, argument))
    return not isinstance(argument, torch.Tensor) or argument.untyped_storage().nbytes() >= argument.nbytes


def relative_error(given: torch.Tensor, right: torch.Tensor) -> float:
    """Return the length of the difference over the length of what is right; infinite where it is no number."""
    if given.shape != right.shape:
        return float("inf")
    error = ((given - right).norm() / right.norm()).item()
    return error if error == error else float("inf")


def expect_weights(blocks: list[Any], group: dist.ProcessGroup | None) -> None:
    """Tell each layer what a gather must give: all ranks' shards, as they are now."""
    for block in blocks:
        shard = block.shard.detach()
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, shard, group=group)
        block.right = torch.cat(parts)


def gradient_notes(blocks: list[Any], reference: list[nn.Module], rank: int, ranks: int) -> dict[str, float]:
    """Return how the layers' gradients are beside the right ones, and beside others that they might be.

    `gradient_error`; `gradient_ratio` along the right one; `own_error` and `other_error`: beside the gradient of this
    rank's samples alone, and beside the nearest of other ranks' parts of the right one; `gradient_memory`: the memory
    that the gradient keeps, over its size. Where a layer has no gradient, `gradient_missing` alone.
    """
    given: list[Any] = [block.shard.grad for block in blocks]
    if any(gradient is None for gradient in given):
        return {"gradient_missing": 1.0}
    parts: list[list[torch.Tensor]] = []
    for block, layer in zip(blocks, reference, strict=True):
        gradients: list[Any] = [weight.grad for weight in layer.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        length = block.shard.numel() * ranks
        parts.append([*nn.functional.pad(flat, (0, length - len(flat))).chunk(ranks)])
    by_rank = [torch.cat(part) for part in zip(*parts, strict=True)]
    own = torch.cat([block.own_gradient.chunk(ranks)[rank] for block in blocks])
    gradient, right = torch.cat(given), by_rank[rank]
    return {
        "gradient_error": relative_error(gradient, right),
        "gradient_ratio": (gradient @ right / (right @ right)).item(),
        "own_error": min(relative_error(gradient, own), relative_error(gradient, own / ranks)),
        "other_error": min(relative_error(gradient, part) for i, part in enumerate(by_rank) if i != rank),
        "gradient_memory": max(part.untyped_storage().nbytes() / part.nbytes for part in given),
    }
