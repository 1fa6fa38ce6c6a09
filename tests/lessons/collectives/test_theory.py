"""Lab 09's theory: nccl-tests' factors, the ring's times, and a ring that gives the sum for any N."""

from pathlib import Path

import pytest

from lessons.collectives import theory as ring
from lessons.collectives.theory import (
    COLLECTIVES,
    algorithm_gb_per_s,
    bus_factor,
    bus_gb_per_s,
    collective_seconds,
    hops,
)
from lessons.collectives.worker.nccl_tests import parse

PRINTED = Path(__file__).parents[2] / "fixtures" / "nccl-tests"
SIZES = [2**26, 2**28, 2**30]


@pytest.mark.parametrize(
    ("file", "collective", "ranks", "sizes"),
    [("all_reduce", "all-reduce", 2, SIZES), ("alltoall", "all-to-all", 2, SIZES)],
)
def test_bandwidths_are_those_that_nccl_tests_prints(file, collective, ranks, sizes):
    text = (PRINTED / f"{file}.txt").read_text()
    for line in parse(text, sizes):
        for half in line:
            bus = bus_gb_per_s(collective, ranks, half.message_bytes, half.seconds)
            assert bus == pytest.approx(half.bus_gb_per_s, rel=3e-4)


def test_factors_and_hops():
    assert [bus_factor(name, 4) for name in COLLECTIVES] == [1.5, 0.75, 0.75, 1.0, 0.75, 1.0]
    assert [bus_factor(name, 2) for name in COLLECTIVES] == [1.0, 0.5, 0.5, 1.0, 0.5, 1.0]
    assert [hops(name, 4) for name in COLLECTIVES] == [6, 3, 3, 3, 3, 1]
    assert algorithm_gb_per_s(2e9, 0.5) == 4


def test_a_rings_time_is_the_formula():
    alpha, beta, size, ranks = 3e-6, 200.0, 10**9, 8
    expected = 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size / (beta * 1e9)
    assert collective_seconds("all-reduce", ranks, size, alpha, beta) == pytest.approx(expected)
    for name in COLLECTIVES:
        assert bus_gb_per_s(name, ranks, size, collective_seconds(name, ranks, size, 0.0, beta)) == pytest.approx(beta)


def after(ranks: int, halves: int = 2) -> list[list[set]]:
    """Give, a rank and chunk, whose values are in it after the ring's halves; none may be added twice."""
    held = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    for half, phase in enumerate((ring.reduce_scatter, ring.all_gather)[:halves]):
        for step in range(ranks - 1):
            sent = {(rank + 1) % ranks: (phase(rank, step, ranks)[0], held[rank]) for rank in range(ranks)}
            coming = {rank: (chunk, set(values[chunk])) for rank, (chunk, values) in sent.items()}
            for rank in range(ranks):
                into, (chunk, values) = phase(rank, step, ranks)[1], coming[rank]
                assert into == chunk, "the chunk that comes in is the one that is sent"
                assert half or not held[rank][into] & values, "added twice"
                held[rank][into] = values if half else held[rank][into] | values
    return held


@pytest.mark.parametrize("ranks", range(2, 10))
def test_the_ring_gives_every_rank_every_sum(ranks):
    everyone = set(range(ranks))
    assert all(chunk == everyone for rank in after(ranks) for chunk in rank)


@pytest.mark.parametrize("ranks", range(2, 10))
def test_after_its_first_half_each_rank_has_one_whole_chunk(ranks):
    for rank, chunks in enumerate(after(ranks, halves=1)):
        whole = [chunk for chunk, values in enumerate(chunks) if len(values) == ranks]
        assert whole == [(rank + 1) % ranks]


@pytest.mark.parametrize(("elements", "ranks", "lengths"), [(8, 4, [2] * 4), (10, 4, [3, 3, 2, 2]), (1, 3, [1, 0, 0])])
def test_chunks_differ_by_one_element_at_most(elements, ranks, lengths):
    assert ring.chunk_lengths(elements, ranks) == lengths


def test_a_rank_sends_the_rings_share():
    assert ring.sent_elements(0, 1200, 4) == 1200 * bus_factor("all-reduce", 4)
    for ranks in range(2, 8):
        every = sum(ring.sent_elements(rank, 1001, ranks) for rank in range(ranks))
        assert every == 2 * (ranks - 1) * 1001, "each half sends every chunk N − 1 times"
