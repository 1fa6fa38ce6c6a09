"""FlashAttention-2 backward in Triton: scores are computed again, tile by tile, instead of having been kept.

Dao 2023, algorithm 2, in two passes: `keys_values` holds a tile of keys and takes all queries past it, `queries_` holds
a block of queries and takes all keys past it. That is seven products where one pass needs five, but every output has
one writer: no atomic addition, so the result is the same bits every time. P comes back from the row log-sum-exp, and
dS = P ∘ (dP − δ) with δ = rowsum(dO ∘ O). Arguments are as in forward.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lessons.attention.worker.forward import matrix, rows_of

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=("queries", "padded", "width"))
def prepare_rows(O, dO, L, OF_ROWS, queries, padded, width, D: tl.constexpr, ROWS: tl.constexpr):
    """Store, for `padded` rows of one head, the log-sum-exp to base 2 and δ; beyond the last query, P will be 0."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, D)
    at = head * queries * width + rows[:, None] * width + columns[None, :]
    in_matrix = (rows[:, None] < queries) & (columns[None, :] < width)
    o = tl.load(O + at, mask=in_matrix, other=0.0).to(tl.float32)
    do = tl.load(dO + at, mask=in_matrix, other=0.0).to(tl.float32)
    lse = tl.load(L + head * queries + rows, mask=rows < queries, other=float("inf"))
    tl.store(OF_ROWS + head * padded + rows, lse * LOG2_E)
    tl.store(OF_ROWS + (tl.num_programs(1) + head) * padded + rows, tl.sum(o * do, 1))


@triton.jit
def vectors(X, n, BLOCK: tl.constexpr, DESCRIBED: tl.constexpr):
    """Return the descriptor by which the copy engine moves BLOCK numbers of X (2 · heads, n)."""
    if DESCRIBED:
        return X
    else:
        return tl.make_tensor_descriptor(X, [2 * tl.num_programs(1), n], [n, 1], [1, BLOCK])


@triton.jit
def gather(
    dk, dv, k, v, Q, dO, OF_ROWS, head, block, columns, scale,
    D: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add one block of queries to a tile's dK and dV. Everything is transposed: Pᵀ then is an operand as it stands."""
    q = rows_of(Q, head, block, ROWS, D)
    lse = OF_ROWS.load([head, block * ROWS]).reshape(ROWS)
    p = tl.exp2(tl.dot(k, q.T, input_precision=PRECISION) * scale - lse[None, :])
    if MASKED:
        p = tl.where((block * ROWS + tl.arange(0, ROWS))[None, :] >= columns[:, None], p, 0.0)
    do = rows_of(dO, head, block, ROWS, D)
    dv = tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION)
    delta = OF_ROWS.load([tl.num_programs(1) + head, block * ROWS]).reshape(ROWS)
    ds = p * (tl.dot(v, do.T, input_precision=PRECISION) - delta[None, :])
    return tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION), dv


@triton.jit(do_not_specialize=("queries", "keys", "padded", "width"))
def keys_values(
    Q, K, V, dO, dK, dV, OF_ROWS, queries, keys, padded, width, scale, root,
    D: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STAGES: tl.constexpr, DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Return dK and dV of COLUMNS keys of one head; grid: (tiles of keys, heads). `root` is 1/√d."""
    tile, head = tl.program_id(0), tl.program_id(1)
    columns = tile * COLUMNS + tl.arange(0, COLUMNS)
    Q, dO = matrix(Q, queries, width, ROWS, D, DESCRIBED), matrix(dO, queries, width, ROWS, D, DESCRIBED)
    K, V = matrix(K, keys, width, COLUMNS, D, DESCRIBED), matrix(V, keys, width, COLUMNS, D, DESCRIBED)
    dK, dV = matrix(dK, keys, width, COLUMNS, D, DESCRIBED), matrix(dV, keys, width, COLUMNS, D, DESCRIBED)
    OF_ROWS = vectors(OF_ROWS, padded, ROWS, DESCRIBED)
    k = rows_of(K, head, tile, COLUMNS, D)
    v = rows_of(V, head, tile, COLUMNS, D)
    dk = tl.zeros([COLUMNS, D], tl.float32)
    dv = tl.zeros([COLUMNS, D], tl.float32)
    end = tl.cdiv(queries, ROWS)
    full = 0
    if CAUSAL:  # blocks of queries wholly before the tile see none of its keys
        full = tl.minimum(tl.cdiv((tile + 1) * COLUMNS, ROWS), end)
        for block in tl.range(tl.minimum(tile * COLUMNS // ROWS, end), full, num_stages=STAGES):
            dk, dv = gather(dk, dv, k, v, Q, dO, OF_ROWS, head, block, columns, scale, D, ROWS, True, PRECISION)
    for block in tl.range(full, end, num_stages=STAGES):
        dk, dv = gather(dk, dv, k, v, Q, dO, OF_ROWS, head, block, columns, scale, D, ROWS, False, PRECISION)
    dK.store([head, tile * COLUMNS, 0], (dk * root).to(dK.dtype).reshape(1, COLUMNS, D))
    dV.store([head, tile * COLUMNS, 0], dv.to(dV.dtype).reshape(1, COLUMNS, D))


@triton.jit
def spread(
    dq, q, do, lse, delta, K, V, head, tile, rows, keys, scale,
    D: tl.constexpr, COLUMNS: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add one tile of keys to the dQ of a block of queries."""
    k = rows_of(K, head, tile, COLUMNS, D)
    v = rows_of(V, head, tile, COLUMNS, D)
    s = tl.dot(q, k.T, input_precision=PRECISION)
    dp = tl.dot(do, v.T, input_precision=PRECISION)
    p = tl.exp2(s * scale - lse[:, None])
    if MASKED:
        columns = tile * COLUMNS + tl.arange(0, COLUMNS)
        seen = columns[None, :] < keys
        if CAUSAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        p = tl.where(seen, p, 0.0)
    ds = p * (dp - delta[:, None])
    return tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)


@triton.jit(do_not_specialize=("queries", "keys", "padded", "width"))
def queries_(
    Q, K, V, dO, dQ, OF_ROWS, queries, keys, padded, width, scale, root,
    D: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STAGES: tl.constexpr, DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Return dQ of ROWS queries of one head; grid: (blocks of queries, heads). `root` is 1/√d."""
    block, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    rows = block * ROWS + tl.arange(0, ROWS)
    Q, dO = matrix(Q, queries, width, ROWS, D, DESCRIBED), matrix(dO, queries, width, ROWS, D, DESCRIBED)
    K, V = matrix(K, keys, width, COLUMNS, D, DESCRIBED), matrix(V, keys, width, COLUMNS, D, DESCRIBED)
    dQ = matrix(dQ, queries, width, ROWS, D, DESCRIBED)
    OF_ROWS = vectors(OF_ROWS, padded, ROWS, DESCRIBED)
    q = rows_of(Q, head, block, ROWS, D)
    do = rows_of(dO, head, block, ROWS, D)
    lse = OF_ROWS.load([head, block * ROWS]).reshape(ROWS)
    delta = OF_ROWS.load([tl.num_programs(1) + head, block * ROWS]).reshape(ROWS)
    dq = tl.zeros([ROWS, D], tl.float32)
    full, end = keys // COLUMNS, tl.cdiv(keys, COLUMNS)
    if CAUSAL:
        full = tl.minimum(full, block * ROWS // COLUMNS)
        end = tl.cdiv(tl.minimum(keys, (block + 1) * ROWS), COLUMNS)
    for tile in tl.range(0, full, num_stages=STAGES):
        dq = spread(dq, q, do, lse, delta, K, V, head, tile, rows, keys, scale, D, COLUMNS, CAUSAL, False, PRECISION)
    for tile in tl.range(full, end, num_stages=STAGES):
        dq = spread(dq, q, do, lse, delta, K, V, head, tile, rows, keys, scale, D, COLUMNS, CAUSAL, True, PRECISION)
    dQ.store([head, block * ROWS, 0], (dq * root).to(dQ.dtype).reshape(1, ROWS, D))
