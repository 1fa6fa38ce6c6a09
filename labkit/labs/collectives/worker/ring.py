"""A ring all-reduce by hand: N − 1 steps that add, N − 1 steps that copy, each a send and a receive."""

from __future__ import annotations

import torch

from labkit.labs.collectives.theory import ring
from labkit.labs.collectives.worker.calls import AllReduce, exchange


class RingAllReduce(AllReduce):
    """An all-reduce made of sends to the next rank and receives from the one before; `sent_bytes` counts the last."""

    def work(self) -> None:
        self.sent_bytes = 0
        self.chunks = self.given.split(ring.chunk_lengths(self.elements, self.ranks))
        self.room = torch.empty_like(self.chunks[0])  # the longest
        self.add()
        self.spread()

    def add(self) -> None:
        """Reduce-scatter: what comes in is added to the own part of that chunk; one chunk is complete at the end."""
        for step in range(self.ranks - 1):
            out, into = ring.reduce_scatter(self.rank, step, self.ranks)
            room = self.room[: len(self.chunks[into])]
            self.pass_on(self.chunks[out], room)
            self.chunks[into].add_(room)

    def spread(self) -> None:
        """All-gather: the complete chunks go round, and each takes the place of the own part."""
        for step in range(self.ranks - 1):
            out, into = ring.all_gather(self.rank, step, self.ranks)
            self.pass_on(self.chunks[out], self.chunks[into])

    def pass_on(self, given: torch.Tensor, room: torch.Tensor) -> None:
        self.sent_bytes += given.nbytes
        for request in exchange(given, room, self.rank, self.ranks, self.group):
            request.wait()
