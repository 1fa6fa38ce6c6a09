"""FlashAttention forward for Hopper, in Gluon: three groups of warps compute while a fourth one only loads.

The algorithm is that of forward.py. What changes is who waits for whom. A group of four warps owns 64 queries. It
issues the scores of the next tile before this tile's P·V: its softmax then runs while the tensor cores do both. K and V
come through shared memory in a ring of stages. Every stage has two barriers: `full` (the copy has arrived), and `empty`
(all groups have read it). A barrier's phase is a bit that flips each time the ring comes round.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from lessons.attention.worker.forward import LN_2

GROUPS = gl.constexpr(3)
ROWS = gl.constexpr(64)  # queries of a group: what one instruction of the tensor cores takes
COLUMNS = gl.constexpr(128)  # keys of a tile
STAGES = gl.constexpr(2)  # tiles in shared memory at a time
D = gl.constexpr(64)
# Registers a thread: three groups of 128 threads with 160 and a loading warp with 24 share the 65,536 of a
# multiprocessor; the compiler is told 128, their average over the 512 threads that a program counts as.
GROUP_REGISTERS, LOADER_REGISTERS = gl.constexpr(160), gl.constexpr(24)
OPTIONS = {"num_warps": 4, "maxnreg": 128}
SIDE_BY_SIDE = 4  # heads whose programs run side by side, so that their K and V stay in L2; a divisor of all heads


@gluon.jit
def place(tiles, HEADS: gl.constexpr):
    """Return this program's tile, counted from 0, and head; HEADS heads take turns."""
    program = gl.program_id(0)
    within = program % (tiles * HEADS)
    return within // HEADS, program // (tiles * HEADS) * HEADS + within % HEADS


@gluon.jit
def load_tiles(tensors, buffers, barriers, first_row, head, tiles):
    """The loading warp: Q once, then the tiles of K and V from the diagonal down to key 0."""
    Q, K, V = tensors
    q_buffer, k_buffer, v_buffer = buffers
    q_full, k_full, k_empty, v_full, v_empty = barriers
    mbarrier.expect(q_full, GROUPS * Q.block_type.nbytes)
    for group in gl.static_range(GROUPS):
        tma.async_copy_global_to_shared(Q, [head, first_row + ROWS * group, 0], q_full, q_buffer.index(group))
    for i in range(tiles):
        stage = i % STAGES
        phase = (i // STAGES) & 1
        column = (tiles - 1 - i) * COLUMNS
        mbarrier.wait(k_empty.index(stage), phase ^ 1)
        mbarrier.expect(k_full.index(stage), K.block_type.nbytes)
        tma.async_copy_global_to_shared(K, [head, column, 0], k_full.index(stage), k_buffer.index(stage))
        mbarrier.wait(v_empty.index(stage), phase ^ 1)
        mbarrier.expect(v_full.index(stage), V.block_type.nbytes)
        tma.async_copy_global_to_shared(V, [head, column, 0], v_full.index(stage), v_buffer.index(stage))


@gluon.jit
def take_tile(s, p, m, l, o, q, buffers, barriers, i, scale, of_output: gl.constexpr):
    """Start the scores of tile i and P·V of the tile before; the softmax of tile i runs while P·V still does."""
    _, k_buffer, v_buffer = buffers
    _, k_full, k_empty, v_full, v_empty = barriers
    operand: gl.constexpr = gl.DotOperandLayout(0, of_output, 2)
    stage = i % STAGES
    stage_before = (i - 1) % STAGES
    k = k_buffer.index(stage).reshape([COLUMNS, D])
    v = v_buffer.index(stage_before).reshape([COLUMNS, D])
    mbarrier.wait(k_full.index(stage), (i // STAGES) & 1)
    s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(stage_before), ((i - 1) // STAGES) & 1)
    o = warpgroup_mma(p, v, o, is_async=True)
    s = warpgroup_mma_wait(1, deps=(s,))  # all products but the newest are done: s, not yet o
    mbarrier.arrive(k_empty.index(stage), count=1)
    highest = gl.maximum(m, gl.max(s, 1) * scale)
    weights = gl.exp2(s * scale - gl.expand_dims(highest, 1))
    shrink = gl.exp2(m - highest)
    l = l * shrink + gl.sum(weights, 1)
    m = highest
    o = warpgroup_mma_wait(0, deps=(o,))
    mbarrier.arrive(v_empty.index(stage_before), count=1)
    o = o * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, of_output)), 1)
    p = gl.convert_layout(weights.to(gl.bfloat16), operand)
    return s, p, m, l, o


@gluon.jit
def attend_tiles(O, L, buffers, barriers, first_row, head, queries, tiles, scale, GROUP: gl.constexpr):
    """One group of warps: its 64 queries past every tile up to their diagonal; writes O and the row log-sum-exp L."""
    q_buffer, k_buffer, v_buffer = buffers
    q_full, k_full, k_empty, v_full, v_empty = barriers
    of_scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    of_output: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, of_output, 2)
    first = first_row + ROWS * GROUP
    rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, of_scores))
    # A later group's diagonal may lie a tile beyond this one's: that tile is let go unread.
    skipped = tiles - 1 - gl.minimum((first + ROWS - 1) // COLUMNS, tiles - 1)
    for i in range(skipped):
        mbarrier.wait(k_full.index(i % STAGES), (i // STAGES) & 1)
        mbarrier.arrive(k_empty.index(i % STAGES), count=1)
        mbarrier.wait(v_full.index(i % STAGES), (i // STAGES) & 1)
        mbarrier.arrive(v_empty.index(i % STAGES), count=1)
    # The tile on the diagonal comes first and alone is masked; keys beyond the last one are masked with it.
    mbarrier.wait(q_full, 0)
    q = q_buffer.index(GROUP).reshape([ROWS, D])
    stage = skipped % STAGES
    mbarrier.wait(k_full.index(stage), (skipped // STAGES) & 1)
    k = k_buffer.index(stage).reshape([COLUMNS, D])
    s = warpgroup_mma(q, k.permute((1, 0)), gl.zeros([ROWS, COLUMNS], gl.float32, of_scores), use_acc=False)
    mbarrier.arrive(k_empty.index(stage), count=1)
    columns = (tiles - 1 - skipped) * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, of_scores))
    s = gl.where(gl.expand_dims(rows, 1) >= gl.expand_dims(columns, 0), s, float("-inf"))
    m = gl.max(s, 1) * scale
    p = gl.exp2(s * scale - gl.expand_dims(m, 1))
    l = gl.sum(p, 1)
    p = gl.convert_layout(p.to(gl.bfloat16), operand)
    o = gl.zeros([ROWS, D], gl.float32, of_output)
    for i in range(skipped + 1, tiles):
        s, p, m, l, o = take_tile(s, p, m, l, o, q, buffers, barriers, i, scale, of_output)
    stage = (tiles - 1) % STAGES
    mbarrier.wait(v_full.index(stage), ((tiles - 1) // STAGES) & 1)
    o = warpgroup_mma(p, v_buffer.index(stage).reshape([COLUMNS, D]), o)
    if first < queries:
        o = o / gl.expand_dims(gl.convert_layout(l, gl.SliceLayout(1, of_output)), 1)
        q.store(o.to(gl.bfloat16))  # in the place of Q, which nobody reads any more
        fence_async_shared()
        tma.async_copy_shared_to_global(O, [head, first, 0], q_buffer.index(GROUP))
        gl.store(L + head.to(gl.int64) * queries + rows, (m + gl.log2(l)) * LN_2, mask=rows < queries)
        tma.store_wait(0)


@gluon.jit(do_not_specialize=("queries",))
def forward(Q, K, V, O, L, queries, scale, HEADS: gl.constexpr):
    """Return causal O and L of GROUPS · ROWS queries of one head; `scale` is log2(e)/√d.

    Grid: blocks of queries × heads. Q and O are described in blocks of [1, ROWS, D], K and V of [1, COLUMNS, D]: loads
    beyond the end give zeros, stores are clipped.
    """
    q_buffer = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, 1, ROWS, D], Q.layout)
    k_buffer = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, COLUMNS, D], K.layout)
    v_buffer = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, COLUMNS, D], V.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=GROUPS)
        mbarrier.init(v_empty.index(stage), count=GROUPS)
    blocks = gl.cdiv(queries, GROUPS * ROWS)
    block, head = place(blocks, HEADS)
    first_row = (blocks - 1 - block) * (GROUPS * ROWS)  # the last queries have the most keys before them: they go first
    tiles = gl.cdiv(gl.minimum(first_row + GROUPS * ROWS, queries), COLUMNS)
    buffers = (q_buffer, k_buffer, v_buffer)
    barriers = (q_full, k_full, k_empty, v_full, v_empty)
    gl.warp_specialize(
        [
            (attend_tiles, (O, L, buffers, barriers, first_row, head, queries, tiles, scale, 0)),
            (attend_tiles, (O, L, buffers, barriers, first_row, head, queries, tiles, scale, 1)),
            (attend_tiles, (O, L, buffers, barriers, first_row, head, queries, tiles, scale, 2)),
            (load_tiles, ((Q, K, V), buffers, barriers, first_row, head, tiles)),
        ],
        [4, 4, 1],
        [GROUP_REGISTERS, GROUP_REGISTERS, LOADER_REGISTERS],
    )
