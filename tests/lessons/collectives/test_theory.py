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


@pytest.mark.parametrize(("elements", "ranks", "lengths"), [(8, 4, [2] * 4), (10, 4, [3, 3, 2, 2]), (1, 3, [1, 0, 0])])
def test_chunks_differ_by_one_element_at_most(elements, ranks, lengths):
    assert ring.chunk_lengths(elements, ranks) == lengths


def test_a_rank_sends_the_rings_share():
    assert ring.sent_elements(0, 1200, 4) == 1200 * bus_factor("all-reduce", 4)
    for ranks in range(2, 8):
        every = sum(ring.sent_elements(rank, 1001, ranks) for rank in range(ranks))
        assert every == 2 * (ranks - 1) * 1001, "each half sends every chunk N − 1 times"
