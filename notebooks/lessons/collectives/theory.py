"""Collectives before anything runs: bytes through a link, a ring step by step, its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from labkit.theory.sizes import GB

NAMES = {"nccl": "NCCL", "gloo": "gloo"}


def backends(found: Iterable[str]) -> list[str]:
    """Return the libraries that are among these, NCCL first."""
    known = set(found)
    return [backend for backend in NAMES if backend in known]


def chunk_lengths(elements: int, ranks: int) -> list[int]:
    """Return the lengths of N chunks that differ by one element at most, the longer ones first."""
    short, longer = divmod(elements, ranks)
    return [short + (chunk < longer) for chunk in range(ranks)]


def sent_elements(rank: int, elements: int, ranks: int) -> int:
    """Return how many elements a rank sends in all: 2(N−1)/N of them, where N divides them."""
    lengths = chunk_lengths(elements, ranks)
    return sum(lengths[move(rank, step, ranks).send] for step in range(steps_of(ranks)))


START, REDUCE_SCATTER, ALL_GATHER = "start", "reduce-scatter", "all-gather"


class Move(NamedTuple):
    """What a rank does in a step: it sends one chunk to the next rank and receives one from the rank before.

    What arrives is added to the rank's own chunk, or replaces it.
    """

    send: int
    receive: int
    add: bool


Chunk = Counter[int]  # how often the chunk holds each rank's values
Held = tuple[tuple[Chunk, ...], ...]  # a row per rank, a column per chunk


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
    """Return how many steps a ring all-reduce takes: N − 1 to reduce, N − 1 to gather."""
    return 2 * (ranks - 1)


def move(rank: int, step: int, ranks: int) -> Move:
    """Return a rank's move in a step, from 0 on: it passes on what has just come, first to be added, then as whole."""
    send = (rank - step) % ranks
    return Move(send, receive=(send - 1) % ranks, add=step < ranks - 1)


def start(ranks: int) -> Held:
    """Return what is held before the first step: every rank its own values of every chunk.

    Raises ValueError for fewer than two ranks.
    """
    if ranks < 2:
        raise ValueError(f"a ring needs 2 ranks or more, not {ranks}")
    return tuple(tuple(Counter([rank]) for _ in range(ranks)) for rank in range(ranks))


def moved(held: Held, moves: Sequence[Move]) -> Held:
    """Return what is held after all ranks moved at once, each receiving what the rank before sends."""
    after = [list(row) for row in held]
    for rank, move in enumerate(moves):
        arrived = held[rank - 1][moves[rank - 1].send]
        after[rank][move.receive] = held[rank][move.receive] + arrived if move.add else arrived
    return tuple(map(tuple, after))


def ring(ranks: int) -> list[Step]:
    """Return the steps of a ring all-reduce in order, the start before them."""
    steps = [Step(0, START, (), start(ranks))]
    for number in range(steps_of(ranks)):
        moves = tuple(move(rank, number, ranks) for rank in range(ranks))
        phase = REDUCE_SCATTER if moves[0].add else ALL_GATHER
        steps.append(Step(number + 1, phase, moves, moved(steps[-1].held, moves)))
    return steps


def sent_bytes(steps: int, message_bytes: float, ranks: int) -> float:
    """Return what a rank has sent after so many steps: a chunk, s/N, in each."""
    return steps * message_bytes / ranks


def steps_seconds(steps: int, message_bytes: float, ranks: int, alpha_s: float, beta_gb_per_s: float) -> float:
    """Return how long so many steps take: each α, and the time that a chunk needs at β."""
    return steps * alpha_s + sent_bytes(steps, message_bytes, ranks) / (1e9 * beta_gb_per_s)


COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all", "send/recv")


def bus_factor(collective: str, ranks: int) -> float:
    """Return the share of a message that each rank sends: what turns algorithm into bus bandwidth.

    2(N−1)/N of an all-reduce; (N−1)/N of an all-gather, a reduce-scatter and an all-to-all, whose message is that of
    all ranks together; all of a broadcast and of a send (nccl-tests, doc/PERFORMANCE.md). With it, a bus bandwidth
    compares with a link's rate for any number of ranks.
    """
    ring = (ranks - 1) / ranks
    return {"all-reduce": 2 * ring, "broadcast": 1.0, "send/recv": 1.0}.get(collective, ring)


def algorithm_gb_per_s(message_bytes: float, collective_seconds: float) -> float:
    """Return the message over the time: how fast it looks to who called it."""
    return message_bytes / collective_seconds / GB


def bus_gb_per_s(collective: str, ranks: int, message_bytes: float, collective_seconds: float) -> float:
    """Return what a link of a ring of these ranks would carry per second."""
    return bus_factor(collective, ranks) * algorithm_gb_per_s(message_bytes, collective_seconds)


FLAT = 1.25  # times as long: the size hardly matters


def is_noise(times: Sequence[float]) -> bool:
    """Say whether noise is larger than what the size adds, up to the last size that takes about as long as the first.

    Then one of these times, which are those of a line by size, is clearly shorter or longer than the first.
    """
    last = max(place for place, time in enumerate(times) if time <= FLAT * times[0])
    return not all(1 / FLAT <= time / times[0] <= FLAT for time in times[: last + 1])
