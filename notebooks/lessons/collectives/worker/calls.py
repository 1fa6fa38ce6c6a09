"""The six collectives as objects: buffers, the call, and what it must give, exact to the last element.

All values are whole numbers above 0 that float32 holds exactly; they differ by rank and by place. A result in the wrong
place, of the wrong rank, added twice or not at all is seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

_PERIOD, _STRIDE = 509, 512  # a prime: no chunk's length is a multiple of it; and a step between ranks beyond it


class Call:
    """One collective of float32 on buffers made once: `work` makes the call, `wrong` checks a fresh one.

    `elements` is the whole message, as nccl-tests counts it; a collective of shares uses the largest multiple of
    `ranks` in it. `message_bytes` is what is used.
    """

    placement = "in place"

    def __init__(self, rank: int, ranks: int, elements: int, device: torch.device, group: dist.ProcessGroup | None):
        self.rank, self.ranks, self.device = rank, ranks, device
        self.group: Any = group
        self.elements, self.share = elements, elements // ranks
        self.given, self.result = self.buffers()
        self.message_bytes = 4 * max(self.given.numel(), self.result.numel())
        self.start, self.due = self.inputs(), self.outputs()

    def buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tensor that goes in and the one that comes out."""
        whole = self.empty(self.elements)
        return whole, whole

    def inputs(self) -> torch.Tensor:
        return self.values(self.rank, 0, self.given.numel())

    def outputs(self) -> torch.Tensor:
        """Return what must come out on this rank."""
        raise NotImplementedError

    def work(self) -> None:
        """Make the call; on a GPU it returns before the data are there."""
        raise NotImplementedError

    def many(self, calls: int) -> None:
        """Make so many calls, none of which waits for the one before to be done."""
        for _ in range(calls):
            self.work()

    def wrong(self, work: Callable[[], None] | None = None) -> int:
        """Fill the buffers anew, make one call, and count the elements that are not what they must be."""
        self.result.fill_(-1)
        self.given.copy_(self.start)
        (work or self.work)()
        return int((self.result != self.due).sum())

    def empty(self, elements: int) -> torch.Tensor:
        return torch.empty(elements, device=self.device)

    def values(self, rank: int, begin: int, elements: int) -> torch.Tensor:
        """Return what `rank` holds from place `begin` on."""
        places = torch.arange(begin, begin + elements, dtype=torch.int32, device=self.device)
        return places.remainder_(_PERIOD).add_(1 + _STRIDE * rank).float()

    def total(self, begin: int, elements: int) -> torch.Tensor:
        """Return the sum over all ranks of what they hold there."""
        sums = self.values(0, begin, elements)
        for rank in range(1, self.ranks):
            sums += self.values(rank, begin, elements)
        return sums


class AllReduce(Call):
    """Every rank gets the sum of all ranks' messages."""

    def outputs(self) -> torch.Tensor:
        return self.total(0, self.elements)

    def work(self) -> None:
        dist.all_reduce(self.given, group=self.group)


class AllGather(Call):
    """Every rank gets every rank's share."""

    def buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        whole = self.empty(self.share * self.ranks)
        return whole[self.rank * self.share :][: self.share], whole

    def outputs(self) -> torch.Tensor:
        return torch.cat([self.values(rank, 0, self.share) for rank in range(self.ranks)])

    def work(self) -> None:
        dist.all_gather_into_tensor(self.result, self.given, group=self.group)


class ReduceScatter(Call):
    """Every rank gets its share of the sum."""

    placement = "out of place"

    def buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.empty(self.share * self.ranks), self.empty(self.share)

    def outputs(self) -> torch.Tensor:
        return self.total(self.rank * self.share, self.share)

    def work(self) -> None:
        dist.reduce_scatter_tensor(self.result, self.given, group=self.group)


class Broadcast(Call):
    """Every rank gets rank 0's message."""

    def outputs(self) -> torch.Tensor:
        return self.values(0, 0, self.elements)

    def work(self) -> None:
        dist.broadcast(self.given, src=0, group=self.group)


class AllToAll(Call):
    """Every rank gets from each rank the share that is meant for it."""

    placement = "out of place"

    def buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.empty(self.share * self.ranks), self.empty(self.share * self.ranks)

    def outputs(self) -> torch.Tensor:
        return torch.cat([self.values(rank, self.rank * self.share, self.share) for rank in range(self.ranks)])

    def work(self) -> None:
        dist.all_to_all_single(self.result, self.given, group=self.group)


class SendRecv(Call):
    """Every rank sends its message to the next rank and gets the one of the rank before."""

    placement = "out of place"

    def buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.empty(self.elements), self.empty(self.elements)

    def outputs(self) -> torch.Tensor:
        return self.values((self.rank - 1) % self.ranks, 0, self.elements)

    def work(self) -> None:
        self.many(1)

    def many(self, calls: int) -> None:
        """Start all, then wait: a wait between two would have the GPU's two streams wait for each other."""
        started = [exchange(self.given, self.result, self.rank, self.ranks, self.group) for _ in range(calls)]
        for request in itertools.chain(*started):
            request.wait()


def exchange(
    given: torch.Tensor, room: torch.Tensor, rank: int, ranks: int, group: dist.ProcessGroup | None
) -> list[dist.Work]:
    """Start sending to the next rank and receiving from the one before; where there is nothing, nothing is sent."""
    transfers = [
        dist.P2POp(dist.isend, given, (rank + 1) % ranks, group),
        dist.P2POp(dist.irecv, room, (rank - 1) % ranks, group),
    ]
    not_empty = [move for move in transfers if move.tensor.numel()]
    return dist.batch_isend_irecv(not_empty) if not_empty else []


CALLS: dict[str, type[Call]] = {
    "all-reduce": AllReduce,
    "all-gather": AllGather,
    "reduce-scatter": ReduceScatter,
    "broadcast": Broadcast,
    "all-to-all": AllToAll,
    "send/recv": SendRecv,
}
