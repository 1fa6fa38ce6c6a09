"""Lab 08's arithmetic: scores under a mask, operations and bytes, and what fits in a memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_attention import Problem

from lessons.attention import theory as memory
from lessons.attention import theory as work
from lessons.attention.worker import attended
from lessons.attention.worker.flash import flash


@given(st.sampled_from(list(memory.SQUARES)), st.integers(0, 2**35), st.integers(1, 128), st.integers(1, 64))
def test_the_longest_sequence_fits_and_one_more_does_not(name, memory_bytes, width, heads):
    longest = memory.longest(name, memory_bytes, width, 4, heads=heads)
    needed = [
        memory.moment_bytes(name, "backward", n, width, 4, heads=heads) + 16 * heads * n * width
        for n in (longest, longest + 1)
    ]
    assert needed[0] <= memory_bytes < needed[1]


@given(st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_scores_are_those_that_a_mask_leaves(queries, keys, causal):
    wanted = sum(1 for i in range(queries) for j in range(keys) if j <= i or not causal)
    assert work.scores(queries, keys, causal) == wanted


def test_work_is_what_the_target_takes():
    setting = {"queries": 16384, "keys": 16384, "head_dim": 64}
    flops = {phase: work.flops(phase, **setting, causal=True, heads=16) / 1e12 for phase in work.PHASES}
    assert flops == {
        name: pytest.approx(t, abs=5e-3) for name, t in (("forward", 0.55), ("backward", 1.37), ("both", 1.92))
    }
    assert work.flops("forward", **setting, causal=False) == 4 * 16384**2 * 64
    assert work.square_bytes(16384, 16384, 4, heads=2) == 2**31


def test_least_bytes_are_those_of_what_goes_in_and_out():
    tensors = Problem((3,), 20, 31, 24, precision="bfloat16").tensors()
    q, k, v, do = tensors
    o, lse, dq, dk, dv = attended(flash, *tensors, True).values()
    phases = {"forward": (q, k, v, o, lse), "backward": (q, k, v, o, do, lse, dq, dk, dv)}
    for phase, moved in phases.items():
        assert work.least_bytes(phase, 20, 31, 24, 2, heads=3) == sum(x.nbytes for x in moved)
    assert work.least_bytes("both", 5, 6, 7, 2) == sum(work.least_bytes(phase, 5, 6, 7, 2) for phase in phases)
