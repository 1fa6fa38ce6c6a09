"""What the backward for Hopper needs of every row before its pass, and makes of dQ after it.

dQ is summed where all programs of a head meet, in any order. In float32 its last bits then differ from run to run; sums
of integers do not depend on the order. So that every sum on the way fits in 32 bits, each row has a factor of its own.
Grids: blocks of ROWS rows, heads.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
ONE = tl.constexpr(2.0**30)  # what a row of dQ in integers reaches at most


@triton.jit
def _places(n, D: tl.constexpr, ROWS: tl.constexpr):
    """Return this program's rows, and where they lie in a matrix (heads, n, D)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    return rows, (tl.program_id(1).to(tl.int64) * n + rows)[:, None] * D + tl.arange(0, D)[None, :]


@triton.jit(do_not_specialize=("keys",))
def largest(K, V, LARGEST, keys, D: tl.constexpr, ROWS: tl.constexpr):
    """Store the largest |k| and the largest |row of V|² of ROWS keys in LARGEST (heads, blocks, 2)."""
    rows, at = _places(keys, D, ROWS)
    k = tl.load(K + at, mask=(rows < keys)[:, None], other=0.0).to(tl.float32)
    v = tl.load(V + at, mask=(rows < keys)[:, None], other=0.0).to(tl.float32)
    place = LARGEST + 2 * (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0))
    tl.store(place, tl.max(tl.max(tl.abs(k), 1), 0))
    tl.store(place + 1, tl.max(tl.sum(v * v, 1), 0))


@triton.jit(do_not_specialize=("queries", "padded"))
def prepare(
    O, dO, L, LARGEST, OF_ROWS, FACTORS, SUMS, queries, padded, D: tl.constexpr, ROWS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """Store the log-sum-exp to base 2 and δ = rowsum(dO ∘ O) of `padded` rows a head, and zeros in dQ's SUMS.

    Beyond the last query P will be 0. FACTORS: |Σ P ∘ (dP − δ) · K| is at most max|k| · (|dO| · max|v| + |δ|), as a row
    of P sums to 1; LARGEST is (heads, 2) here.
    """
    rows, at = _places(queries, D, ROWS)
    head, there = tl.program_id(1), (rows < queries)[:, None]
    do = tl.load(dO + at, mask=there, other=0.0).to(tl.float32)
    delta = tl.sum(tl.load(O + at, mask=there, other=0.0).to(tl.float32) * do, 1)
    lse = tl.load(L + head.to(tl.int64) * queries + rows, mask=rows < queries, other=float("inf"))
    tl.store(OF_ROWS + head * padded + rows, lse * LOG2_E)
    tl.store(OF_ROWS + (tl.num_programs(1) + head) * padded + rows, delta)
    tl.store(SUMS + at, tl.zeros([ROWS, D], SUMS.dtype.element_ty), mask=there)
    if EXACT:
        k, v = tl.load(LARGEST + 2 * head), tl.sqrt(tl.load(LARGEST + 2 * head + 1))
        bound = k * (tl.sqrt(tl.sum(do * do, 1)) * v + tl.abs(delta))
        tl.store(FACTORS + head * padded + rows, ONE / tl.maximum(bound, 1e-20))


@triton.jit(do_not_specialize=("queries", "padded"))
def finish(
    SUMS, FACTORS, dQ, queries, padded, root, D: tl.constexpr, ROWS: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    """Store dQ of its sums; `root` is 1/√d."""
    rows, at = _places(queries, D, ROWS)
    dq = tl.load(SUMS + at, mask=(rows < queries)[:, None], other=0).to(tl.float32) * root
    if EXACT:
        dq = dq / tl.load(FACTORS + tl.program_id(1) * padded + rows)[:, None]
    tl.store(dQ + at, dq.to(dQ.dtype.element_ty), mask=(rows < queries)[:, None])
