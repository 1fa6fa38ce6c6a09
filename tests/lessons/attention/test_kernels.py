"""Lab 08's kernels, on a GPU or in Triton's interpreter: float64's values for any shape and layout; linear memory.

The same tests hold the tiles in PyTorch to it.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from made_attention import DEVICE, LAYOUTS, LIMITS, LIMITS_ROUNDED, Problem, assert_exact
from torch.nn.functional import scaled_dot_product_attention

from lessons.attention.plan import PRECISIONS
from lessons.attention.worker import TENSORS, outputs_and_gradients, scaled_error
from lessons.attention.worker.flash import PADDED, flash
from lessons.attention.worker.measuring import OperatorWatch, kept_bytes
from lessons.attention.worker.plain import exact, tiled

LENGTHS = st.integers(1, 70) | st.sampled_from([16, 32, 33, PADDED, PADDED + 1])
ours = pytest.mark.parametrize("attention", [flash, tiled], ids=["flash", "tiled"])


PROBLEMS = st.builds(
    Problem,
    leading=st.lists(st.integers(1, 2), max_size=2).map(tuple),
    queries=LENGTHS,
    keys=LENGTHS,
    width=st.integers(1, 128) | st.sampled_from([16, 32, 64, 128]),
    causal=st.booleans(),
    precision=st.sampled_from(PRECISIONS),
    layouts=st.tuples(*[st.sampled_from(list(LAYOUTS))] * 4),
    seed=st.integers(0, 99),
)


@ours
@settings(max_examples=40, deadline=None, phases=[Phase.reuse, Phase.generate])  # to shrink takes minutes
@given(problem=PROBLEMS)
def test_values_and_gradients_are_float64s(attention, problem):
    tensors = problem.tensors()
    found = outputs_and_gradients(attention, *tensors, problem.causal)
    rounded = attention is tiled or DEVICE.type == "cuda"  # kernels on a CPU are given float32
    assert_exact(found, tensors, problem.causal, LIMITS_ROUNDED if rounded else LIMITS)


@ours
@pytest.mark.parametrize("leading", [(1, 1), (2, 1)])
@pytest.mark.parametrize("queries", [8, 32, 40, 64, 128])
def test_one_key_of_the_shape_of_the_log_sum_exp(attention, queries, leading):
    """K and V, kept as (heads, 1, d), then have the log-sum-exp's shape (…, Nq), and must not be taken for it."""
    tensors = Problem(leading, queries, 1, queries).tensors()
    assert_exact(outputs_and_gradients(attention, *tensors, False), tensors, False)


@ours
@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (33, 47), (47, 33), (1, 40), (40, 1)])
def test_a_mask_is_torchs(attention, queries, keys):
    q, k, v, _ = Problem((2,), queries, keys).tensors()
    torch.testing.assert_close(attention(q, k, v, True), scaled_dot_product_attention(q, k, v, is_causal=True))
    first = attention(q, k, v, is_causal=True)[:, 0]
    torch.testing.assert_close(first, v[:, 0], msg="the first query sees the first key alone")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("times", "shift"), [(100, 0), (1, -200), (1, 200)], ids=["wide", "all low", "all high"])
def test_scores_of_ten_thousand(times, shift, causal):
    q, k, v, do = Problem((1,), 40, 40).tensors()
    with torch.no_grad():
        q *= times
        k *= times
        q[..., 0] += shift
        k[..., 0] += abs(shift)
    assert (q @ k.mT / 4).abs().max() > 1e4
    found, wanted = outputs_and_gradients(flash, q, k, v, do, causal), exact(q, k, v, do, causal)
    assert all(torch.isfinite(found[name]).all() for name in TENSORS)
    # float32 has 0.001 between neighbours at 1e4, and that is how well a score is known.
    assert max(scaled_error(found[name], wanted[name]) for name in ("O", "L", "dV")) < 1e-2


@ours
def test_what_is_kept_and_made_is_linear(attention):
    (heads, queries, keys, width), number = (2, 200, 160, 20), 4  # bytes of a float32
    q, k, v, do = Problem((heads,), queries, keys, width).tensors()
    found = kept_bytes(lambda: attention(q, k, v, True))
    assert found == number * heads * ((2 * queries + 2 * keys) * width + queries)
    with OperatorWatch() as watch:
        torch.autograd.grad(attention(q, k, v, True), (q, k, v), do)
    assert watch.largest <= number * heads * queries * width, "no tensor is larger than an input"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_same_bits_every_time_and_whatever_else_is_in_the_batch(precision, causal):
    q, k, v, do = Problem((3,), precision=precision).tensors()
    found, again = (outputs_and_gradients(flash, q, k, v, do, causal) for _ in range(2))
    one = [x.detach()[1:2].requires_grad_() for x in (q, k, v)]
    alone = outputs_and_gradients(flash, *one, do[1:2], causal)
    for name in TENSORS:
        assert torch.equal(found[name], again[name])
        assert torch.equal(found[name][1:2], alone[name])


@pytest.mark.parametrize("wanting", ["q", "k", "v", "qk", "qv", "kv"])
def test_only_what_wants_a_gradient_gets_one(wanting):
    q, k, v, do = Problem().tensors()
    every = outputs_and_gradients(flash, q, k, v, do, True)
    some = {name: x.detach().requires_grad_(name in wanting) for name, x in zip("qkv", (q, k, v), strict=True)}
    flash(*some.values(), True).backward(do)
    for name, x in some.items():
        assert (x.grad is not None) == (name in wanting)
        assert x.grad is None or torch.equal(x.grad, every[f"d{name.upper()}"])


def test_without_autograd_it_gives_the_same():
    q, k, v, do = Problem().tensors()
    wanted = outputs_and_gradients(flash, q, k, v, do, True)["O"]
    with torch.no_grad():
        o = flash(q, k, v, True)
    assert o.grad_fn is None and torch.equal(o, wanted)
    assert torch.equal(flash(q.detach(), k.detach(), v.detach(), True), wanted)


def test_a_gradient_that_is_one_number_everywhere():
    q, k, v, do = Problem((2, 1)).tensors()
    wanted = outputs_and_gradients(flash, q, k, v, torch.ones_like(do), False)
    for name, x in zip(TENSORS[2:], torch.autograd.grad(flash(q, k, v).sum(), (q, k, v)), strict=True):
        assert torch.equal(x, wanted[name])


def test_a_second_derivative_is_refused():
    q, k, v, _ = Problem().tensors()
    with pytest.raises(RuntimeError, match="no gradients of their own"):
        torch.autograd.grad(flash(q, k, v).sum(), q, create_graph=True)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "raises", "words"),
    [
        ([(2, 5, 16)] * 3, ["float16"] * 3, TypeError, "all float32, or all bfloat16"),
        ([(2, 5, 16)] * 3, ["float64"] * 3, TypeError, "float64, torch.float64: all float32"),
        ([(2, 5, 16)] * 3, ["float32", "bfloat16", "float32"], TypeError, "q, k, v are torch.float32, torch.bfloat16"),
        ([(2, 5, 16), (2, 6, 16), (2, 7, 16)], ["float32"] * 3, ValueError, r"v \(2, 7, 16\): \(…, N, d\) with one"),
        ([(2, 5, 16), (1, 5, 16), (1, 5, 16)], ["float32"] * 3, ValueError, r"k \(1, 5, 16\).*with one … and d"),
        ([(2, 5, 16), (2, 5, 8), (2, 5, 8)], ["float32"] * 3, ValueError, r"k \(2, 5, 8\).*with one … and d"),
        ([(16,)] * 3, ["float32"] * 3, ValueError, r"q \(16,\).*: \(…, N, d\)"),
        ([(2, 5, 129)] * 3, ["float32"] * 3, ValueError, "d is 1 to 128, and N at least 1"),
        ([(2, 5, 0)] * 3, ["float32"] * 3, ValueError, "d is 1 to 128"),
        ([(2, 0, 16), (2, 5, 16), (2, 5, 16)], ["float32"] * 3, ValueError, "N at least 1"),
        ([(2, 5, 16), (2, 0, 16), (2, 0, 16)], ["float32"] * 3, ValueError, "N at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(shapes, dtypes, raises, words):
    tensors = (torch.zeros(shape, dtype=getattr(torch, d)) for shape, d in zip(shapes, dtypes, strict=True))
    with pytest.raises(raises, match=words):
        flash(*tensors)
