"""Interval arithmetic and accounts: known traces, any trace against a grid counted by hand; names of kernels."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.theory.intervals import accounted, drawn, length, merged, shared, without
from labkit.theory.kernels import collective, family, short_name

SOME = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda at: (at[0], at[0] + at[1])), max_size=9)


def cells(intervals) -> set[int]:
    return {cell for start, end in intervals for cell in range(start, end)}


@pytest.mark.parametrize(
    ("intervals", "union"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(4, 6), (0, 2)], [(0, 2), (4, 6)]),
        ([(0, 2), (2, 5)], [(0, 5)]),
        ([(0, 9), (2, 3), (8, 12)], [(0, 12)]),
    ],
    ids=["nothing", "empty", "apart", "touching", "nested"],
)
def test_merged(intervals, union):
    assert merged(intervals) == union


def test_gaps_are_closed_up_to_a_length_and_for_a_drawing_until_few_are_left():
    parts = [(0, 1), (3, 4), (8, 9), (30, 31)]
    assert merged(parts, gap=2) == [(0, 4), (8, 9), (30, 31)]
    assert drawn(parts, gap=2, most=3) == [(0, 4), (8, 9), (30, 31)]
    assert drawn(parts, gap=2, most=2) == [(0, 9), (30, 31)]
    assert drawn(parts, gap=2, most=1) == [(0, 31)]


@given(SOME, SOME)
def test_arithmetic_is_that_of_sets_of_cells(a, b):
    for result, truth in (
        (merged(a), cells(a)),
        (shared(a, b), cells(a) & cells(b)),
        (without(a, b), cells(a) - cells(b)),
    ):
        assert cells(result) == truth
        assert length(result) == len(truth)
        assert all(one[1] < other[0] for one, other in pairwise(result)), "not merged"


@given(SOME, SOME, st.integers(0, 20), st.integers(0, 25))
def test_any_account_equals_the_grid_and_fills_the_window(compute, communication, start, window):
    end = start + window
    inside = set(range(start, end))
    work, moved = cells(compute) & inside, cells(communication) & inside
    account = accounted(compute, communication, start, end)
    counted = (account.compute, account.communication, account.hidden, account.exposed, account.idle)
    assert counted == tuple(map(len, (work, moved, work & moved, moved - work, inside - work - moved)))
    assert account.compute + account.exposed + account.idle == window
    assert account.hidden + account.exposed == account.communication
    assert account.overlap == pytest.approx(len(work & moved) / len(moved)) if moved else math.isnan(account.overlap)


@pytest.mark.parametrize(
    ("compute", "communication", "known"),
    [
        ([(0, 6), (4, 10)], [(8, 12)], (10, 4, 2, 2, 8)),
        ([(0, 10)], [(2, 4), (3, 6)], (10, 4, 4, 0, 10)),
        ([(5, 8)], [(8, 11)], (3, 3, 0, 3, 14)),
        ([(-5, 3)], [(18, 30)], (3, 2, 0, 2, 15)),
        ([], [], (0, 0, 0, 0, 20)),
    ],
    ids=["two streams compute", "two collectives at once", "touching", "outside the window", "nothing"],
)
def test_known_traces(compute, communication, known):
    account = accounted(compute, communication, 0, 20)
    assert (account.compute, account.communication, account.hidden, account.exposed, account.idle) == known


NAMES = [
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllGather_RING_LL", "nccl"),
    ("gloo:all_reduce", "gloo:all_reduce", "nccl"),
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "matmul"),
    (
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t>, true>(Params)",
        "flash_fwd_kernel",
        "attention",
    ),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(TensorListMetadata<4>, float*)",
        "multi_tensor_apply_kernel",
        "optimizer",
    ),
    (
        "void at::native::elementwise_kernel<128, 4, gpu_kernel_impl<direct_copy_kernel_cuda(TensorIteratorBase&)"
        "::{lambda()#3}::operator()() const::{lambda(float)#7}> >(int, bool)",
        "elementwise_kernel",
        "copy",
    ),
    ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD", "copy"),
    ("triton_poi_fused_add_copy_mul_silu_4", "triton_poi_fused_add_copy_mul_silu_4", "elementwise"),
    ("triton_red_fused__fused_rms_norm_2", "triton_red_fused__fused_rms_norm_2", "reduce/norm"),
    ("void at::native::reduce_kernel<512, 1, ReduceOp<float> >(ReduceOp<float>)", "reduce_kernel", "reduce/norm"),
    ("aten::addmm", "addmm", "matmul"),
    ("spin", "spin", "other"),
]


@pytest.mark.parametrize(("name", "short", "kind"), NAMES, ids=[short for _, short, _ in NAMES])
def test_kernels_get_a_short_name_and_a_family(name, short, kind):
    assert (short_name(name), family(name)) == (short, kind)


def test_no_short_name_is_long():
    assert short_name("k" * 60) == "k" * 60
    assert short_name("k" * 61) == "k" * 59 + "…"


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(Args)", "reduce_scatter"),
        ("ncclKernel_AllReduce_TREE_LL_Sum_float(Args)", "all_reduce"),
        ("ncclDevKernel_SendRecv(Args)", "send_recv"),
        ("gloo:all_gather", "all_gather"),
    ],
)
def test_collectives(name, which):
    assert collective(name) == which
