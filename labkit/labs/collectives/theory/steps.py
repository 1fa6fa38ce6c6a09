"""Ring all-reduce step by step: which rank sends which chunk, and whose values every chunk holds then.

Every rank's tensor is cut into N chunks. In N − 1 steps of reduce-scatter a rank adds what arrives to its own; then it
holds one chunk that is whole. In N − 1 steps of all-gather the whole chunks go round and replace what is there
(Patarasuk & Yuan 2009).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from labkit.labs.collectives.theory.ring import all_gather, reduce_scatter

START, REDUCE_SCATTER, ALL_GATHER = "start", "reduce-scatter", "all-gather"


class Move(NamedTuple):
    """What a rank does in a step: it sends one chunk to the next rank and receives one from the rank before.

    What arrives is added to the rank's own chunk, or replaces it.
    """

    send: int
    receive: int
    add: bool


Chunk = Counter[int]  # how often the chunk holds each rank's values
Held = tuple[tuple[Chunk, ...], ...]  # a row a rank, a column a chunk


@dataclass(frozen=True)
class Step:
    """One step: its number from 1 on (0: before the first), its phase, every rank's move, and what is held after it."""

    number: int
    phase: str
    moves: tuple[Move, ...]
    held: Held

    def is_whole(self, rank: int, chunk: int) -> bool:
        """Say whether the rank holds every rank's values of the chunk, each once."""
        return self.held[rank][chunk] == Counter(range(len(self.held)))

    @property
    def whole(self) -> int:
        """How many chunks are whole, of N × N."""
        places = range(len(self.held))
        return sum(self.is_whole(rank, chunk) for rank in places for chunk in places)


def steps_of(ranks: int) -> int:
    """Give how many steps a ring all-reduce takes: N − 1 to reduce, N − 1 to gather."""
    return 2 * (ranks - 1)


def move(rank: int, step: int, ranks: int) -> Move:
    """Give a rank's move in a step, from 0 on through both phases."""
    if step < ranks - 1:
        return Move(*reduce_scatter(rank, step, ranks), add=True)
    return Move(*all_gather(rank, step - (ranks - 1), ranks), add=False)


def start(ranks: int) -> Held:
    """Give what is held before the first step: every rank its own values of every chunk.

    Raises ValueError for fewer than two ranks.
    """
    if ranks < 2:
        raise ValueError(f"a ring needs 2 ranks or more, not {ranks}")
    return tuple(tuple(Counter([rank]) for _ in range(ranks)) for rank in range(ranks))


def moved(held: Held, moves: Sequence[Move]) -> Held:
    """Give what is held after all ranks moved at once, each receiving what the rank before sends."""
    after = [list(row) for row in held]
    for rank, own in enumerate(moves):
        arrived = held[rank - 1][moves[rank - 1].send]
        after[rank][own.receive] = held[rank][own.receive] + arrived if own.add else arrived
    return tuple(map(tuple, after))


def ring(ranks: int) -> list[Step]:
    """Give the steps of a ring all-reduce in order, the start before them."""
    steps = [Step(0, START, (), start(ranks))]
    for number in range(steps_of(ranks)):
        moves = tuple(move(rank, number, ranks) for rank in range(ranks))
        phase = REDUCE_SCATTER if moves[0].add else ALL_GATHER
        steps.append(Step(number + 1, phase, moves, moved(steps[-1].held, moves)))
    return steps


def sent_bytes(steps: int, message_bytes: float, ranks: int) -> float:
    """Give what a rank has sent after so many steps: a chunk, s/N, in each."""
    return steps * message_bytes / ranks


def seconds(steps: int, message_bytes: float, ranks: int, alpha_s: float, beta_gb_per_s: float) -> float:
    """Give how long so many steps take: each α, and the time that a chunk needs at β."""
    return steps * alpha_s + sent_bytes(steps, message_bytes, ranks) / (1e9 * beta_gb_per_s)
