"""The graph of a broadcast's copies: which waits for which, which could run simultaneously, how long its chains are.

Times are in chunk times: every copy takes as long as its elements need at one chunk a unit of time, on any lane.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import pandas as pd


@dataclass(frozen=True)
class Copy:
    """One copy as the worker logged it: lane, buffers ("host", "0", "1", …), elements, and what it waits for.

    `after` are the copies that it was told to wait for, `waited` those that the function itself had waited for before
    it asked for this one.
    """

    lane: str
    origin: str
    target: str
    first: int
    elements: int
    after: tuple[int, ...]
    waited: tuple[int, ...]

    @property
    def end(self) -> int:
        """The element after its last one."""
        return self.first + self.elements

    @property
    def is_forward(self) -> bool:
        """Whether it goes from GPU to GPU."""
        return self.origin not in ("host", "elsewhere")

    def overlaps(self, other: Copy) -> bool:
        """Return whether both move some element in common."""
        return self.first < other.end and other.first < self.end


class Graph:
    """What the copies of one call wait for. `copies` is the table of their spans, in the order they were asked for."""

    def __init__(self, copies: pd.DataFrame, chunk_elements: int):
        rows = copies.sort_values("index").to_dict("records")
        self.copies = [
            Copy(*(row[name] for name in ("lane", "origin", "target", "first", "elements")), *map(tuple, waits))
            for row in rows
            for waits in [(row["after"], row["waited"])]
        ]
        self.chunk_elements = chunk_elements

    def chains(self, *, waits: bool = True, after: bool = True) -> list[set[int]]:
        """Return what each copy waits for directly: the copies named in `after`, its lane's one before it, `waited`.

        Without `waits` or `after` only those of them that bring the elements it copies.
        """
        lanes: dict[str, int] = {}
        direct = []
        for index, copy in enumerate(self.copies):
            before = {lanes[copy.lane]} if copy.lane in lanes else set()
            before |= (
                set(copy.after) if after else {earlier for earlier in copy.after if earlier in self.all_writers[index]}
            )
            before |= set(copy.waited) if waits else set()
            direct.append(before if waits and after else before | self.writers[index])
            lanes[copy.lane] = index
        return direct

    @cached_property
    def writers(self) -> list[set[int]]:
        """For each copy the earlier ones that wrote some element of its origin."""
        written: dict[str, list[int]] = defaultdict(list)
        bringing = []
        for index, copy in enumerate(self.copies):
            bringing.append({earlier for earlier in written[copy.origin] if copy.overlaps(self.copies[earlier])})
            written[copy.target].append(index)
        return bringing

    @cached_property
    def all_writers(self) -> list[set[int]]:
        """For each copy all earlier ones on the way of its elements, from the host on."""
        return [set(_members(bits)) for bits in _transitive_closure(self.writers)]

    @cached_property
    def ended_before(self) -> list[int]:
        """For each copy, as a set of bits, all copies that are certainly over before it starts."""
        return _transitive_closure(self.chains())

    def missing(self) -> Iterator[Copy]:
        """Yield the forwards that may start before what they send has arrived."""
        for index, copy in enumerate(self.copies):
            at = copy.first
            if copy.is_forward:
                sources = [
                    self.copies[earlier] for earlier in self.writers[index] if self.ended_before[index] >> earlier & 1
                ]
                for source in sorted(sources, key=lambda source: source.first):
                    at = max(at, source.end) if source.first <= at else at
                if at < copy.end:
                    yield copy

    def length(self, index: int) -> float:
        """Return how long a copy takes, in chunk times."""
        return self.copies[index].elements / self.chunk_elements

    def ends(self, chains: list[set[int]]) -> list[float]:
        """Return when each copy ends if each starts as soon as what it waits for is over, in chunk times."""
        ends: list[float] = []
        for index, before in enumerate(chains):
            ends.append(max((ends[earlier] for earlier in before), default=0.0) + self.length(index))
        return ends

    def chunk_times_of(self, chains: list[set[int]]) -> float:
        """Return the length of the longest chain of copies that wait for each other, in chunk times."""
        return max(self.ends(chains), default=0.0)

    @cached_property
    def chunk_times(self) -> float:
        """The length of the longest chain of copies that wait for each other, in chunk times: the critical path."""
        return self.chunk_times_of(self.chains())

    @cached_property
    def least_chunk_times(self) -> float:
        """The same if every copy waited for its own elements alone, and each lane took first what is there first."""
        waiting, followers = [len(before) for before in self.writers], defaultdict(list)
        for index, before in enumerate(self.writers):
            for earlier in before:
                followers[earlier].append(index)
        ready = [(0.0, index) for index, count in enumerate(waiting) if not count]
        free: dict[str, float] = defaultdict(float)
        heapq.heapify(ready)
        while ready:
            time, index = heapq.heappop(ready)
            lane = self.copies[index].lane
            free[lane] = end = max(time, free[lane]) + self.length(index)
            for follower in followers[index]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, (end, follower))
        return max(free.values(), default=0.0)

    @cached_property
    def forwards(self) -> list[int]:
        """The copies from GPU to GPU."""
        return [index for index, copy in enumerate(self.copies) if copy.is_forward]

    @cached_property
    def overlapped_forwards(self) -> int:
        """How many forwards could run simultaneously with some copy from the host: neither waits for the other."""
        pulls = [index for index, copy in enumerate(self.copies) if copy.origin == "host"]
        return sum(any(not self._ordered(forward, pull) for pull in pulls) for forward in self.forwards)

    def _ordered(self, first: int, other: int) -> bool:
        return bool(self.ended_before[first] >> other & 1 or self.ended_before[other] >> first & 1)

    def unneeded(self) -> tuple[Copy, Copy] | None:
        """Return a copy on the longest chain, and one whose arrival it is told to wait for without need."""
        for earlier, later in pairwise(self._longest_chain()):
            if earlier in self.copies[later].after and earlier not in self.all_writers[later]:
                return self.copies[later], self.copies[earlier]
        return None

    def _longest_chain(self) -> list[int]:
        chains = self.chains()
        ends = self.ends(chains)
        chain = [max(range(len(ends)), key=ends.__getitem__)]
        while chains[chain[-1]]:
            chain.append(max(chains[chain[-1]], key=ends.__getitem__))
        return chain[::-1]


def _transitive_closure(chains: Iterable[set[int]]) -> list[int]:
    """Return for each copy, as a set of bits, what it waits for, what that waits for, and so on."""
    closures: list[int] = []
    for before in chains:
        bits = 0
        for earlier in before:
            bits |= closures[earlier] | 1 << earlier
        closures.append(bits)
    return closures


def _members(bits: int) -> Iterator[int]:
    """Yield the numbers in a set of bits."""
    yield from (index for index in range(bits.bit_length()) if bits >> index & 1)
