"""Lab 09's theory: nccl-tests' factors, the ring's times, and a ring that gives the sum for any N."""

from collections import Counter
from pathlib import Path

import pytest

from lessons.collectives.theory import (
    ALL_GATHER,
    COLLECTIVES,
    REDUCE_SCATTER,
    START,
    Move,
    algorithm_gb_per_s,
    bus_factor,
    bus_gb_per_s,
    chunk_lengths,
    is_noise,
    move,
    moved,
    ring,
    sent_bytes,
    sent_elements,
    start,
    steps_of,
    steps_seconds,
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


def test_factors():
    assert [bus_factor(name, 4) for name in COLLECTIVES] == [1.5, 0.75, 0.75, 1.0, 0.75, 1.0]
    assert [bus_factor(name, 2) for name in COLLECTIVES] == [1.0, 0.5, 0.5, 1.0, 0.5, 1.0]
    assert algorithm_gb_per_s(2e9, 0.5) == 4


@pytest.mark.parametrize(("elements", "ranks", "lengths"), [(8, 4, [2] * 4), (10, 4, [3, 3, 2, 2]), (1, 3, [1, 0, 0])])
def test_chunks_differ_by_one_element_at_most(elements, ranks, lengths):
    assert chunk_lengths(elements, ranks) == lengths


def test_a_rank_sends_the_rings_share():
    assert sent_elements(0, 1200, 4) == 1200 * bus_factor("all-reduce", 4)
    for ranks in range(2, 8):
        every = sum(sent_elements(rank, 1001, ranks) for rank in range(ranks))
        assert every == 2 * (ranks - 1) * 1001, "each half sends every chunk N − 1 times"


@pytest.mark.parametrize("ranks", range(2, 17))
def test_a_ring_ends_with_every_chunk_whole(ranks):
    steps = ring(ranks)
    assert [step.number for step in steps] == list(range(2 * (ranks - 1) + 1)) and steps_of(ranks) == 2 * (ranks - 1)
    assert [step.phase for step in steps] == [START] + (ranks - 1) * [REDUCE_SCATTER] + (ranks - 1) * [ALL_GATHER]
    whole = [step.whole for step in steps]
    assert whole == [0] * (ranks - 1) + [ranks * (1 + gathered) for gathered in range(ranks)]
    for step in steps:
        counts = [count for row in step.held for chunk in row for count in chunk.values()]
        assert set(counts) == {1}, "nobody's values are counted twice"


def test_a_step_is_a_send_and_a_receive():
    assert move(0, 0, 4) == Move(0, 3, True) and move(0, 3, 4) == Move(1, 0, False)
    for rank in range(5):
        for step in range(8):
            assert move((rank + 1) % 5, step, 5).receive == move(rank, step, 5).send
    held = moved(start(2), [Move(0, 1, True), Move(1, 0, False)])
    assert held == ((Counter([0]), Counter([0, 1])), (Counter([0]), Counter([1])))
    with pytest.raises(ValueError, match="2 ranks or more"):
        ring(1)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_costs_are_the_formulas(ranks):
    steps, (size, alpha_us, rate) = steps_of(ranks), (2**20, 5, 100)
    assert sent_bytes(steps, size, ranks) == pytest.approx(bus_factor("all-reduce", ranks) * size)
    whole = 2 * (ranks - 1) * alpha_us / 1e6 + 2 * (ranks - 1) / ranks * size / (rate * 1e9)
    assert steps_seconds(steps, size, ranks, alpha_us / 1e6, rate) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("times", "noisy"),
    [((1.0, 1.1, 2.0, 4.0), False), ((1.0, 0.5, 1.0), True), ((1.0, 3.0, 1.1), True), ((1.0, 2.0, 1.5), False)],
)
def test_noise_is_what_hides_the_size(times, noisy):
    assert is_noise(times) == noisy
