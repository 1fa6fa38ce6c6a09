"""FlashAttention backward for Hopper, in Gluon: one pass of five products where backward.py takes two and seven.

A program owns 128 keys. Two groups of warps hold 64 of them each: K and V as register operands, dK and dV as
accumulators. They take the blocks of queries from the diagonal on. A third group loads the blocks ahead, multiplies the
dS of both groups by K, and has the copy engine add that to the sums of dQ in global memory (hopper_rows.py), where all
programs of a head meet. Scores are transposed (Sᵀ = K·Qᵀ), so that Pᵀ and dSᵀ are operands as they stand. Stages and
barriers are those of hopper_forward.py.
"""

from __future__ import annotations

from typing import Any

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from lessons.attention.worker.hopper_forward import place

GROUPS = gl.constexpr(2)  # of keys
COLUMNS = gl.constexpr(64)  # keys of a group
ROWS = gl.constexpr(64)  # queries of a block
D = gl.constexpr(64)
STAGES = gl.constexpr(3)  # blocks of Q and dO in shared memory at a time
SLOTS = gl.constexpr(2)  # for dS, and for dQ on its way out
# Registers a thread: the compiler's 168 times three groups are 504; the third group needs fewer than the other two.
GROUP_REGISTERS, THIRD_REGISTERS = gl.constexpr(200), gl.constexpr(104)
OPTIONS = {"num_warps": 4, "maxnreg": 168}
SIDE_BY_SIDE = 2  # heads whose programs run side by side, so that their Q and dO stay in L2; a divisor of all heads


@builtin
def add_to_global(tensor, coordinates, source, _semantic: Any = None):
    """Have the copy engine add a block of shared memory to global memory: Gluon can, but has no name for it."""
    coordinates = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    add = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(add, tensor.handle, coordinates, source.handle)


@gluon.jit
def load_block(tensors, buffers, full, block, first_key, head, heads, padded):
    """Fetch one block of queries into its stage: Q, dO, and their rows' log-sum-exp and δ."""
    Q, dO, OF_ROWS = tensors
    q_buffer, do_buffer, lse_buffer, delta_buffer = buffers
    stage = block % STAGES
    barrier = full.index(stage)
    row = first_key + block * ROWS  # the first block lies on the diagonal
    mbarrier.expect(barrier, 2 * Q.block_type.nbytes + 2 * OF_ROWS.block_type.nbytes)
    tma.async_copy_global_to_shared(Q, [head, row, 0], barrier, q_buffer.index(stage))
    tma.async_copy_global_to_shared(OF_ROWS, [head * padded + row], barrier, lse_buffer.index(stage))
    tma.async_copy_global_to_shared(dO, [head, row, 0], barrier, do_buffer.index(stage))
    tma.async_copy_global_to_shared(OF_ROWS, [(heads + head) * padded + row], barrier, delta_buffer.index(stage))


@gluon.jit
def load_and_add(
    tensors, K, V, SUMS, buffers, k_buffer, v_buffer, ds_buffer, dq_buffer, barriers, first_key, head, heads,
    padded, blocks,
):  # fmt: skip
    """The third group: it loads everything, and turns dS into dQ."""
    kv_full, full, empty, ds_full, ds_empty = barriers
    of_dq: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, ROWS, 16]
    )  # dQᵀ: its stores meet no bank twice
    operand: gl.constexpr = gl.DotOperandLayout(0, of_dq, 2)
    mbarrier.expect(kv_full, 2 * GROUPS * K.block_type.nbytes)
    for group in gl.static_range(GROUPS):
        tma.async_copy_global_to_shared(K, [head, first_key + COLUMNS * group, 0], kv_full, k_buffer.index(group))
        tma.async_copy_global_to_shared(V, [head, first_key + COLUMNS * group, 0], kv_full, v_buffer.index(group))
    for block in gl.static_range(STAGES - 1):
        if block < blocks:
            load_block(tensors, buffers, full, block, first_key, head, heads, padded)
    mbarrier.wait(kv_full, 0)
    k_0 = k_buffer.index(0).reshape([COLUMNS, D]).permute((1, 0)).load(operand)
    k_1 = k_buffer.index(1).reshape([COLUMNS, D]).permute((1, 0)).load(operand)
    for block in range(blocks):
        slot = block % SLOTS
        mbarrier.wait(ds_full.index(slot), (block // SLOTS) & 1)
        dq = gl.zeros([D, ROWS], gl.float32, of_dq)
        dq = warpgroup_mma(k_0, ds_buffer.index(slot * GROUPS), dq, use_acc=False, is_async=True)
        dq = warpgroup_mma(k_1, ds_buffer.index(slot * GROUPS + 1), dq, is_async=True)
        ahead = block + STAGES - 1  # fetched here, behind the products: the stage is empty by now, nobody waits
        if ahead < blocks:
            mbarrier.wait(empty.index(ahead % STAGES), ((ahead // STAGES) & 1) ^ 1)
            load_block(tensors, buffers, full, ahead, first_key, head, heads, padded)
        tma.store_wait(SLOTS - 1)
        dq = warpgroup_mma_wait(0, deps=(dq,))
        mbarrier.arrive(ds_empty.index(slot), count=1)
        transposed = dq_buffer.index(slot).reshape([ROWS, D]).permute((1, 0))
        transposed.store(dq)
        fence_async_shared()
        add_to_global(SUMS, [head, first_key + block * ROWS, 0], dq_buffer.index(slot))
    tma.store_wait(0)


@gluon.jit
def take_block(
    dk, dv, k, v, buffers, ds_buffer, barriers, block, scale, GROUP: gl.constexpr, MASKED: gl.constexpr,
    layout: gl.constexpr,
):  # fmt: skip
    """Add one block of queries to a group's dK and dV, and hand its dSᵀ to the third group."""
    q_buffer, do_buffer, lse_buffer, delta_buffer = buffers
    _, full, empty, ds_full, ds_empty = barriers
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    of_rows: gl.constexpr = gl.SliceLayout(0, layout)
    stage = block % STAGES
    slot = block % SLOTS
    q = q_buffer.index(stage).reshape([ROWS, D])
    do = do_buffer.index(stage).reshape([ROWS, D])
    zero = gl.zeros([COLUMNS, ROWS], gl.float32, layout)
    mbarrier.wait(full.index(stage), (block // STAGES) & 1)
    s = warpgroup_mma(k, q.permute((1, 0)), zero, use_acc=False, is_async=True)
    dp = warpgroup_mma(v, do.permute((1, 0)), zero, use_acc=False, is_async=True)
    lse = lse_buffer.index(stage).load(of_rows)
    s = warpgroup_mma_wait(1, deps=(s,))  # dP still runs under the exponentials
    p = gl.exp2(s * scale - gl.expand_dims(lse, 0))
    if MASKED:
        columns = COLUMNS * GROUP + gl.arange(0, COLUMNS, gl.SliceLayout(1, layout))
        rows = block * ROWS + gl.arange(0, ROWS, of_rows)
        p = gl.where(gl.expand_dims(rows, 0) >= gl.expand_dims(columns, 1), p, 0.0)
    dv = warpgroup_mma(gl.convert_layout(p.to(gl.bfloat16), operand), do, dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=(dp,))
    delta = delta_buffer.index(stage).load(of_rows)  # only here: its registers were lse's until now
    ds = (p * (dp - gl.expand_dims(delta, 0))).to(gl.bfloat16)
    mbarrier.wait(ds_empty.index(slot), ((block // SLOTS) & 1) ^ 1)
    ds_buffer.index(slot * GROUPS + GROUP).store(ds)
    fence_async_shared()
    mbarrier.arrive(ds_full.index(slot), count=1)
    dk = warpgroup_mma(gl.convert_layout(ds, operand), q, dk, is_async=True)
    dk, dv = warpgroup_mma_wait(0, deps=(dk, dv))
    mbarrier.arrive(empty.index(stage), count=1)
    return dk, dv


@gluon.jit
def gather_blocks(
    dK, dV, buffers, k_buffer, v_buffer, ds_buffer, barriers, first_key, head, blocks, scale, root,
    GROUP: gl.constexpr,
):  # fmt: skip
    """One group of keys: dK and dV of its 64 keys from every block of queries past them."""
    kv_full, _, _, _, ds_empty = barriers
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])  # of 64 × 64: D is ROWS
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    dk = gl.zeros([COLUMNS, D], gl.float32, layout)
    dv = gl.zeros([COLUMNS, D], gl.float32, layout)
    mbarrier.wait(kv_full, 0)
    k = k_buffer.index(GROUP).reshape([COLUMNS, D])
    v = v_buffer.index(GROUP).reshape([COLUMNS, D])
    k_operand = k.load(operand)
    v_operand = v.load(operand)
    diagonal: gl.constexpr = GROUPS * COLUMNS // ROWS  # blocks that the mask's edge goes through
    for block in range(gl.minimum(diagonal, blocks)):
        dk, dv = take_block(
            dk, dv, k_operand, v_operand, buffers, ds_buffer, barriers, block, scale, GROUP, True, layout
        )
    for block in range(diagonal, blocks):
        dk, dv = take_block(
            dk, dv, k_operand, v_operand, buffers, ds_buffer, barriers, block, scale, GROUP, False, layout
        )
    # K and V are in registers, the third group's too once it has taken the last dS: their buffers carry the results.
    mbarrier.wait(ds_empty.index((blocks - 1) % SLOTS), ((blocks - 1) // SLOTS) & 1)
    k.store((dk * root).to(gl.bfloat16))
    v.store(dv.to(gl.bfloat16))
    fence_async_shared()
    tma.async_copy_shared_to_global(dK, [head, first_key + COLUMNS * GROUP, 0], k_buffer.index(GROUP))
    tma.async_copy_shared_to_global(dV, [head, first_key + COLUMNS * GROUP, 0], v_buffer.index(GROUP))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=("queries", "padded", "heads"))
def backward(
    Q, K, V, dO, dK, dV, SUMS, OF_ROWS, queries, padded, heads, scale, root, HEADS: gl.constexpr,
):  # fmt: skip
    """Return causal dK and dV of 128 keys of one head, and add their part of dQ·√d to SUMS.

    Grid: tiles of keys × heads. All matrices are described in blocks of [1, 64, 64]; OF_ROWS, what hopper_rows.prepare
    wrote, in blocks of 64.
    """
    k_buffer = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, 1, COLUMNS, D], K.layout)
    v_buffer = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, 1, COLUMNS, D], V.layout)
    q_buffer = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, ROWS, D], Q.layout)
    do_buffer = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, ROWS, D], dO.layout)
    lse_buffer = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], OF_ROWS.layout)
    delta_buffer = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], OF_ROWS.layout)
    of_ds: gl.constexpr = gl.NVMMASharedLayout.get_default_for([COLUMNS, ROWS], gl.bfloat16)
    ds_buffer = gl.allocate_shared_memory(gl.bfloat16, [SLOTS * GROUPS, COLUMNS, ROWS], of_ds)
    dq_buffer = gl.allocate_shared_memory(SUMS.dtype, [SLOTS, 1, ROWS, D], SUMS.layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ds_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    ds_empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kv_full, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
    for slot in gl.static_range(SLOTS):
        mbarrier.init(ds_full.index(slot), count=GROUPS)
        mbarrier.init(ds_empty.index(slot), count=1)
    tile, head = place(gl.cdiv(queries, GROUPS * COLUMNS), HEADS)  # the first keys have the most queries: they go first
    first_key = tile * (GROUPS * COLUMNS)
    blocks = gl.cdiv(queries - first_key, ROWS)
    tensors = (Q, dO, OF_ROWS)
    buffers = (q_buffer, do_buffer, lse_buffer, delta_buffer)
    barriers = (kv_full, full, empty, ds_full, ds_empty)
    gl.warp_specialize(
        [
            (
                gather_blocks,
                (dK, dV, buffers, k_buffer, v_buffer, ds_buffer, barriers, first_key, head, blocks, scale, root, 0),
            ),
            (
                gather_blocks,
                (dK, dV, buffers, k_buffer, v_buffer, ds_buffer, barriers, first_key, head, blocks, scale, root, 1),
            ),
            (
                load_and_add,
                (
                    tensors, K, V, SUMS, buffers, k_buffer, v_buffer, ds_buffer, dq_buffer, barriers,
                    first_key, head, heads, padded, blocks,
                ),
            ),
        ],
        [4, 4],
        [GROUP_REGISTERS, THIRD_REGISTERS],
    )  # fmt: skip
