"""FlashAttention-2 forward in Triton: one program takes a block of queries past the keys, a tile at a time.

Dao 2023, algorithm 1. Scores live in registers only; per query the program keeps a running maximum m, a running sum l
and an output o that is not yet divided by l. Exponents are to base 2, which the hardware computes: `scale` is
log2(e) / √d. Arguments marked constexpr are known when the kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl

LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def matrix(X, n, width, BLOCK: tl.constexpr, D: tl.constexpr, DESCRIBED: tl.constexpr):
    """Return the descriptor by which the copy engine moves BLOCK rows of X (heads, n, width), padded to D columns.

    Loads fill with zeros what lies beyond n or width, stores leave it out. The host may have made it already.
    """
    if DESCRIBED:
        return X
    else:
        return tl.make_tensor_descriptor(X, [tl.num_programs(1), n, width], [n * width, width, 1], [1, BLOCK, D])


@triton.jit
def rows_of(X, head, block, BLOCK: tl.constexpr, D: tl.constexpr):
    """Return rows block · BLOCK … (block + 1) · BLOCK − 1 of one head; X is what `matrix` returned for such blocks."""
    return X.load([head, block * BLOCK, 0]).reshape(BLOCK, D)


@triton.jit
def attend(
    o, l, m, q, K, V, head, tile, rows, keys, scale,
    D: tl.constexpr, COLUMNS: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Take one tile of keys and values into a block of queries: a step of the online softmax."""
    k = rows_of(K, head, tile, COLUMNS, D)
    s = tl.dot(q, k.T, input_precision=PRECISION)
    if MASKED:
        columns = tile * COLUMNS + tl.arange(0, COLUMNS)
        seen = columns[None, :] < keys
        if CAUSAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        s = tl.where(seen, s, float("-inf"))
    highest = tl.maximum(m, tl.max(s, 1) * scale)
    p = tl.exp2(s * scale - highest[:, None])
    shrink = tl.exp2(m - highest)  # what was summed under a lower maximum counts less
    l = l * shrink + tl.sum(p, 1)
    o = o * shrink[:, None]
    v = rows_of(V, head, tile, COLUMNS, D)
    return tl.dot(p.to(v.dtype), v, o, input_precision=PRECISION), l, highest


@triton.jit(do_not_specialize=("queries", "keys", "width"))
def forward(
    Q, K, V, O, L, queries, keys, width, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STAGES: tl.constexpr, DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Return O and the row log-sum-exp L of ROWS queries of one head; grid: (blocks of queries, heads)."""
    # A head's last queries have the most keys before them: they start first, so that none is left to run alone.
    block, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    rows = block * ROWS + tl.arange(0, ROWS)
    Q, O = matrix(Q, queries, width, ROWS, D, DESCRIBED), matrix(O, queries, width, ROWS, D, DESCRIBED)
    K, V = matrix(K, keys, width, COLUMNS, D, DESCRIBED), matrix(V, keys, width, COLUMNS, D, DESCRIBED)
    q = rows_of(Q, head, block, ROWS, D)
    o = tl.zeros([ROWS, D], tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    full, end = keys // COLUMNS, tl.cdiv(keys, COLUMNS)
    if CAUSAL:  # tiles wholly before the block need no mask, tiles wholly after it are never visited
        full = tl.minimum(full, block * ROWS // COLUMNS)
        end = tl.cdiv(tl.minimum(keys, (block + 1) * ROWS), COLUMNS)
    for tile in tl.range(0, full, num_stages=STAGES):
        o, l, m = attend(o, l, m, q, K, V, head, tile, rows, keys, scale, D, COLUMNS, CAUSAL, False, PRECISION)
    for tile in tl.range(full, end, num_stages=STAGES):
        o, l, m = attend(o, l, m, q, K, V, head, tile, rows, keys, scale, D, COLUMNS, CAUSAL, True, PRECISION)
    O.store([head, block * ROWS, 0], (o / l[:, None]).to(O.dtype).reshape(1, ROWS, D))
    tl.store(L + head.to(tl.int64) * queries + rows, (m + tl.log2(l)) * LN_2, mask=rows < queries)
