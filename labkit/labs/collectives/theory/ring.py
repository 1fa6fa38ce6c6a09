"""A ring all-reduce as a schedule: which chunk each rank sends and receives in each of its 2(N−1) steps.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. Rank r sends to r + 1
and receives from r − 1. N − 1 steps of reduce-scatter add what comes in; then rank r has chunk r + 1 complete, and
N − 1 steps of all-gather overwrite with what comes in.
"""

from __future__ import annotations


def reduce_scatter(rank: int, step: int, ranks: int) -> tuple[int, int]:
    """Give the chunk to send and the chunk that comes in and is added, in step 0 … N−2."""
    return (rank - step) % ranks, (rank - step - 1) % ranks


def all_gather(rank: int, step: int, ranks: int) -> tuple[int, int]:
    """Give the complete chunk to send and the complete chunk that comes in, in step 0 … N−2."""
    return (rank + 1 - step) % ranks, (rank - step) % ranks


def chunk_lengths(elements: int, ranks: int) -> list[int]:
    """Give the lengths of N chunks that differ by one element at most, the longer ones first."""
    short, longer = divmod(elements, ranks)
    return [short + (chunk < longer) for chunk in range(ranks)]


def sent_elements(rank: int, elements: int, ranks: int) -> int:
    """Give how many elements a rank sends in all: 2(N−1)/N of them, where N divides them."""
    lengths = chunk_lengths(elements, ranks)
    steps = range(ranks - 1)
    return sum(lengths[phase(rank, step, ranks)[0]] for phase in (reduce_scatter, all_gather) for step in steps)
