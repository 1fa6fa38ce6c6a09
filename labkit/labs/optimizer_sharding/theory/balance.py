"""Who updates what: three ways to share out parameters, and how even each is."""

from __future__ import annotations

from collections.abc import Sequence

RULES = ("by number", "whole parameters", "by elements")


def loads(sizes: Sequence[int], ranks: int, rule: str) -> list[int]:
    """Give how many elements each rank gets of parameters with these numbers of elements.

    "by number": parameter i to rank i mod N. "whole parameters": the largest first, each to the rank that has least
    so far, as torch's ZeroRedundancyOptimizer does. "by elements": equal parts, wherever a parameter ends.
    """
    if rule == "by number":
        return [sum(sizes[rank::ranks]) for rank in range(ranks)]
    if rule == "by elements":
        return [sum(end - begin for _, begin, end in pieces) for pieces in shards(sizes, ranks)]
    held = [0] * ranks
    for size in sorted(sizes, reverse=True):
        held[held.index(min(held))] += size
    return held


def shards(sizes: Sequence[int], ranks: int) -> list[list[tuple[int, int, int]]]:
    """Give each rank its pieces (number of the parameter, begin, end) of the parameters laid end to end.

    Parts are equal, rounded up to a whole element; the last may be shorter.
    """
    share = -(-sum(sizes) // ranks)
    parts: list[list[tuple[int, int, int]]] = [[] for _ in range(ranks)]
    at = 0
    for number, size in enumerate(sizes):
        for rank in range(ranks):
            begin, end = max(at, rank * share), min(at + size, (rank + 1) * share)
            if begin < end:
                parts[rank].append((number, begin - at, end - at))
        at += size
    return parts


def excess(held: Sequence[int]) -> float:
    """Give by which share the fullest rank has more than an equal part."""
    return max(held) * len(held) / sum(held) - 1


def least_excess(sizes: Sequence[int], ranks: int) -> float:
    """Give the excess that no assignment of whole parameters can go below: the largest one has to be somewhere."""
    return max(0.0, max(sizes) * ranks / sum(sizes) - 1)


def fullest_bucket(sizes: Sequence[int], most: float) -> int:
    """Give the elements of the largest bucket, filled in order with at most so many, or with one parameter."""
    fullest = held = 0
    for size in sizes:
        held = size if held and held + size > most else held + size
        fullest = max(fullest, held)
    return fullest
