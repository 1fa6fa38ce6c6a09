"""What the backward for Hopper needs of every row before its pass, and makes of dQ after it.

dQ is summed where all programs of a head meet, in any order: its last bits differ from run to run.
Grids: blocks of ROWS rows, heads.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lessons.attention.worker.backward import LOG2_E


@triton.jit
def _places(n, D: tl.constexpr, ROWS: tl.constexpr):
    """Return this program's rows, and where they lie in a matrix (heads, n, D)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    return rows, (tl.program_id(1).to(tl.int64) * n + rows)[:, None] * D + tl.arange(0, D)[None, :]


@triton.jit(do_not_specialize=("queries", "padded"))
def prepare(O, dO, L, OF_ROWS, SUMS, queries, padded, D: tl.constexpr, ROWS: tl.constexpr):
    """Store the log-sum-exp to base 2 and δ = rowsum(dO ∘ O) of `padded` rows a head, and zeros in dQ's SUMS.

    Beyond the last query P will be 0.
    """
    rows, at = _places(queries, D, ROWS)
    head, there = tl.program_id(1), (rows < queries)[:, None]
    do = tl.load(dO + at, mask=there, other=0.0).to(tl.float32)
    delta = tl.sum(tl.load(O + at, mask=there, other=0.0).to(tl.float32) * do, 1)
    lse = tl.load(L + head.to(tl.int64) * queries + rows, mask=rows < queries, other=float("inf"))
    tl.store(OF_ROWS + head * padded + rows, lse * LOG2_E)
    tl.store(OF_ROWS + (tl.num_programs(1) + head) * padded + rows, delta)
    tl.store(SUMS + at, tl.zeros([ROWS, D], SUMS.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=("queries",))
def finish(SUMS, dQ, queries, root, D: tl.constexpr, ROWS: tl.constexpr):
    """Store dQ of its sums; `root` is 1/√d."""
    rows, at = _places(queries, D, ROWS)
    dq = tl.load(SUMS + at, mask=(rows < queries)[:, None], other=0.0) * root
    tl.store(dQ + at, dq.to(dQ.dtype.element_ty), mask=(rows < queries)[:, None])
