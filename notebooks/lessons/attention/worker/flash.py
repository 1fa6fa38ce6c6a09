"""FlashAttention-2 as a function that autograd can call: checks its tensors, launches the kernels, keeps O and L."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from lessons.attention.worker import backward, forward
from lessons.attention.worker.measuring import Tile, tile_for

PADDED = 128  # rows per head are padded to a multiple of it, so that no block of queries needs a mask for them
_MOST_HEADS = 65535
# Three TF32 products in place of one keep float32's 24 bits (Ootomo & Yokota 2022), on tensor cores.
PRECISION = "tf32x3"


class Flash(torch.autograd.Function):
    """Attention of q (..., Nq, d) over k and v (..., Nk, d): O (..., Nq, d). Query i sees keys 0…i if is_causal.

    float32 or bfloat16, 1 ≤ d ≤ 128, any Nq and Nk. Keeps q, k, v and O as (heads, N, d) and, last, the row log-sum-exp
    as (..., Nq): nothing that grows with Nq × Nk. The same tile gives the same bits every time. A first call for a new
    kind of problem times tiles (measuring.py): make it before you capture a CUDA graph. Raises TypeError or ValueError
    for tensors that do not fit.
    """

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        _check(q, k, v)
        ctx.is_causal, ctx.root, ctx.shapes, ctx.dtype = is_causal, q.shape[-1] ** -0.5, (q.shape, k.shape), q.dtype
        with torch.cuda.device_of(q):  # Triton launches on the current GPU; autograd makes it so in backward
            heads = _heads(q), _heads(k), _heads(v)
            o, lse = attention_forward(*heads, is_causal, ctx.root)
        ctx.save_for_backward(*heads, o, lse.view(q.shape[:-1]))
        return _shaped(o, q.shape, q.dtype)

    @staticmethod
    def backward(ctx, do):
        if torch.is_grad_enabled():  # a second derivative would miss what the kernels do, and say nothing
            raise RuntimeError("the kernels' gradients have no gradients of their own: no create_graph=True")
        q, k, v, o, lse = ctx.saved_tensors
        dq, dk, dv = attention_backward(q, k, v, o, _heads(do), lse, ctx.is_causal, ctx.root)
        of_q, of_k = ctx.shapes
        return _shaped(dq, of_q, ctx.dtype), _shaped(dk, of_k, ctx.dtype), _shaped(dv, of_k, ctx.dtype), None


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Return the attention of q over k and v as `Flash` computes it."""
    return Flash.apply(q, k, v, is_causal)


def attention_forward(q, k, v, causal: bool, root: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and the row log-sum-exp of tensors of shape (heads, N, d) that `_heads` made; `root` is 1/√d."""
    (heads, queries, width), keys = q.shape, k.shape[1]
    o, lse = torch.empty_like(q), torch.empty((heads, queries), dtype=torch.float32, device=q.device)
    kernel_constants, scale = (_padded_width(width), causal, PRECISION), root * math.log2(math.e)

    def launch(tile: Tile) -> None:
        block, side = (partial(_matrix, tile, rows, kernel_constants[0]) for rows in (tile.rows, tile.columns))
        arguments = (block(q), side(k), side(v), block(o), lse, queries, keys, width, scale)
        _launch(forward.forward, (_blocks(queries, tile.rows), heads, 1), tile, kernel_constants, q, arguments)

    launch(tile_for("forward", q, kernel_constants[0], causal, launch))
    return o, lse


def attention_backward(q, k, v, o, do, lse, causal: bool, root: float) -> tuple[torch.Tensor, ...]:
    """Return dQ, dK and dV of tensors of shape (heads, N, d); `lse` has heads × Nq numbers."""
    (heads, queries, width), keys = q.shape, k.shape[1]
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    padded = _blocks(queries, PADDED) * PADDED
    of_rows = torch.empty((2 * heads, padded), dtype=torch.float32, device=q.device)  # log-sum-exp to base 2, then δ
    kernel_constants = (_padded_width(width), causal, PRECISION)
    numbers = (queries, keys, padded, width, root * math.log2(math.e), root)
    arguments = (o, do, lse, of_rows, queries, padded, width)
    _launch(backward.prepare_rows, (padded // PADDED, heads, 1), None, (kernel_constants[0], PADDED), q, arguments)

    def launch_keys_values(tile: Tile) -> None:
        block, side = (partial(_matrix, tile, rows, kernel_constants[0]) for rows in (tile.rows, tile.columns))
        rows = partial(_matrix, tile, tile.rows, 0)
        arguments = (block(q), side(k), side(v), block(do), side(dk), side(dv), rows(of_rows), *numbers)
        _launch(backward.keys_values, (_blocks(keys, tile.columns), heads, 1), tile, kernel_constants, q, arguments)

    def launch_queries(tile: Tile) -> None:
        block, side = (partial(_matrix, tile, rows, kernel_constants[0]) for rows in (tile.rows, tile.columns))
        rows = partial(_matrix, tile, tile.rows, 0)
        arguments = (block(q), side(k), side(v), block(do), block(dq), rows(of_rows), *numbers)
        _launch(backward.queries_, (_blocks(queries, tile.rows), heads, 1), tile, kernel_constants, q, arguments)

    launch_keys_values(tile_for("keys_values", q, kernel_constants[0], causal, launch_keys_values))
    launch_queries(tile_for("queries", q, kernel_constants[0], causal, launch_queries))
    return dq, dk, dv


_compiled: dict[tuple, Any] = {}


def _launch(
    kernel, grid: tuple[int, int, int], tile: Tile | None, kernel_constants: tuple, q: torch.Tensor, arguments
) -> None:
    """Launch a kernel; from the second time on without what Triton does to find out which compiled one it is.

    That takes 20 µs, longer than the kernel itself at short sequences. No integer is specialised on, and all tensors
    start at multiples of 16 bytes, so that `key` says all that the compiled kernel depends on.
    """
    triton.set_allocator(_scratch)  # holds in one thread, and autograd has its own
    key = (kernel, tile, kernel_constants, q.dtype, q.device)
    if (compiled_before := _compiled.get(key)) is not None:
        compiled_before[0][grid](*arguments, *compiled_before[1])
        return
    constants = kernel_constants + ((tile.rows, tile.columns, tile.stages, tile.described) if tile else ())
    compiled = kernel[grid](*arguments, *constants, **(tile.options() if tile else {}))
    if compiled is not None:  # the interpreter has none
        _compiled[key] = (compiled, constants)


def _scratch(size: int, alignment: int, stream: int | None) -> Any:
    """Return the memory in which programs put the descriptors that they make."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    if not q.dtype == k.dtype == v.dtype or q.dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: all float32, or all bfloat16")
    if q.dim() < 2 or k.shape != v.shape or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: (…, N, d) with one … and d")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k, v are on {q.device}, {k.device}, {v.device}: all on one device")
    if math.prod(q.shape[:-2]) > _MOST_HEADS:
        raise ValueError(f"q {tuple(q.shape)}: batch × heads is at most {_MOST_HEADS:,}, the rows of a GPU's grid")
    if not 1 <= q.shape[-1] <= 128 or not q.shape[-2] or not k.shape[-2]:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}: d is 1 to 128, and N at least 1")


def _heads(x: torch.Tensor) -> torch.Tensor:
    """Return (…, N, d) as a contiguous (heads, N, d) whose rows are multiples of 16 bytes, as the copy engine asks.

    The interpreter's products of bfloat16 are wrong: on a CPU it is given float32.
    """
    if x.dim() != 3:
        x = x.reshape(-1, *x.shape[-2:])
    if not x.is_cuda:
        x = x.float()
    if missing := -x.shape[-1] % (16 // x.element_size()):
        x = torch.nn.functional.pad(x, (0, missing))
    x = x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


def _shaped(y: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Return what a kernel wrote in the shape and precision of the tensors that came in."""
    if y.shape[-1] != shape[-1]:  # without the columns that `_heads` added
        y = y[..., : shape[-1]]
    if y.dtype != dtype:
        y = y.to(dtype)
    return y if y.shape == shape else y.reshape(shape)


def _padded_width(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def _blocks(n: int, size: int) -> int:
    return -(-n // size)


def _matrix(tile: Tile, rows: int, padded_width: int, x: torch.Tensor) -> torch.Tensor | TensorDescriptor:
    """Return x described to the copy engine in blocks of `rows`, where the tile has the host do that; else x itself."""
    if not tile.described:
        return x
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, rows, padded_width] if padded_width else [1, rows])
