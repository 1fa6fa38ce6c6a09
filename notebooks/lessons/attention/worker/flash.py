"""FlashAttention-2 as a function that autograd can call: checks its tensors, launches the kernels, keeps O and L."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from lessons.attention.worker import backward, forward
from lessons.attention.worker.launching import DescribedTensor, Launch, block_count, launch
from lessons.attention.worker.measuring import Tile, tile_for

PADDED = 128  # rows per head are padded to a multiple of it, so that no block of queries needs a mask for them
_MOST_HEADS = 65535
# Three TF32 products in place of one keep float32's 24 bits (Ootomo & Yokota 2022), on tensor cores.
PRECISION = "tf32x3"


class Flash(torch.autograd.Function):
    """Attention of q (..., Nq, d) over k and v (..., Nk, d): O (..., Nq, d). Query i sees keys 0…i if is_causal.

    float32 or bfloat16, 1 ≤ d ≤ 128, any Nq and Nk. Keeps q, k, v and O and, last, the row log-sum-exp
    as (..., Nq): nothing that grows with Nq × Nk. The same tile gives the same bits every time. A first call for a new
    kind of problem times tiles (measuring.py): make it before you capture a CUDA graph. Raises TypeError or ValueError
    for tensors that do not fit.
    """

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False, kernels=None):
        _check(q, k, v)
        ctx.kernels = kernels or TILED
        ctx.is_causal, ctx.root, ctx.shapes, ctx.dtype = is_causal, q.shape[-1] ** -0.5, (q.shape, k.shape), q.dtype
        with torch.cuda.device_of(q):  # Triton launches on the current GPU; autograd makes it so in backward
            heads = _aligned(q), _aligned(k), _aligned(v)
            o, lse = ctx.kernels.forward(*heads, is_causal, ctx.root)
        ctx.save_for_backward(*heads, o, lse)
        return _shaped(o, q.shape, q.dtype)

    @staticmethod
    def backward(ctx, do):
        if torch.is_grad_enabled():  # a second derivative would miss what the kernels do, and say nothing
            raise RuntimeError("the kernels' gradients have no gradients of their own: no create_graph=True")
        q, k, v, o, lse = ctx.saved_tensors
        dq, dk, dv = ctx.kernels.backward(q, k, v, o, _aligned(do), lse, ctx.is_causal, ctx.root)
        of_q, of_k = ctx.shapes
        return _shaped(dq, of_q, ctx.dtype), _shaped(dk, of_k, ctx.dtype), _shaped(dv, of_k, ctx.dtype), None, None


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Return the attention of q over k and v as `Flash` computes it."""
    return Flash.apply(q, k, v, is_causal)


def attention_forward(q, k, v, causal: bool, root: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and the row log-sum-exp of tensors that `_aligned` made; `root` is 1/√d."""
    heads, queries, keys, width = _sizes(q, k)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    kernel_constants, scale = (_padded_width(width), causal, PRECISION), root * math.log2(math.e)

    def launch_forward(tile: Tile) -> None:
        block, side = (partial(_matrix, tile, rows, kernel_constants[0]) for rows in (tile.rows, tile.columns))
        arguments = (block(q), side(k), side(v), block(o), lse, queries, keys, width, scale)
        _launch(forward.forward, (block_count(queries, tile.rows), heads, 1), tile, kernel_constants, arguments)

    launch_forward(tile_for("forward", q, kernel_constants[0], causal, launch_forward))
    return o, lse


def attention_backward(
    q, k, v, o, do, lse, causal: bool, root: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dQ, dK and dV of such tensors; `lse` is (…, Nq)."""
    heads, queries, keys, width = _sizes(q, k)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    padded = block_count(queries, PADDED) * PADDED
    of_rows = torch.empty((2 * heads, padded), dtype=torch.float32, device=q.device)  # log-sum-exp to base 2, then δ
    kernel_constants = (_padded_width(width), causal, PRECISION)
    numbers = (queries, keys, padded, width, root * math.log2(math.e), root)
    arguments = (o, do, lse, of_rows, queries, padded, width)
    _launch(backward.prepare_rows, (padded // PADDED, heads, 1), None, (kernel_constants[0], PADDED), arguments)

    def launch_keys_values(tile: Tile) -> None:
        block, side = (partial(_matrix, tile, rows, kernel_constants[0]) for rows in (tile.rows, tile.columns))
        rows = partial(_matrix, tile, tile.rows, 0)
        arguments = (block(q), side(k), side(v), block(do), side(dk), side(dv), rows(of_rows), *numbers)
        _launch(backward.keys_values, (block_count(keys, tile.columns), heads, 1), tile, kernel_constants, arguments)

    def launch_queries(tile: Tile) -> None:
        block, side = (partial(_matrix, tile, rows, kernel_constants[0]) for rows in (tile.rows, tile.columns))
        rows = partial(_matrix, tile, tile.rows, 0)
        arguments = (block(q), side(k), side(v), block(do), block(dq), rows(of_rows), *numbers)
        _launch(backward.queries_, (block_count(queries, tile.rows), heads, 1), tile, kernel_constants, arguments)

    launch_keys_values(tile_for("keys_values", q, kernel_constants[0], causal, launch_keys_values))
    launch_queries(tile_for("queries", q, kernel_constants[0], causal, launch_queries))
    return dq, dk, dv


class Kernels(NamedTuple):
    """What starts the kernels: `forward` and `backward`, with the arguments and results of those above."""

    forward: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    backward: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


TILED = Kernels(attention_forward, attention_backward)


def _launch(kernel, grid: tuple[int, int, int], tile: Tile | None, kernel_constants: tuple, arguments: tuple) -> None:
    constants = kernel_constants + ((tile.rows, tile.columns, tile.stages, tile.described) if tile else ())
    tensors = [getattr(value, "tensor", value) for value in arguments]
    setting = (kernel.__name__, grid, constants, *[x for x in tensors if not isinstance(x, torch.Tensor)])
    tensors = tuple(x for x in tensors if isinstance(x, torch.Tensor))
    options = tile.options() if tile else {}
    launch((*setting, tensors[0].dtype), tensors, lambda: Launch(kernel, grid, arguments, constants, options))


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


def _sizes(q: torch.Tensor, k: torch.Tensor) -> tuple[int, int, int, int]:
    """Return heads, queries, keys and d of q (…, Nq, d) and k (…, Nk, d)."""
    *heads, queries, width = q.shape
    return math.prod(heads), queries, k.shape[-2], width


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """Return (…, N, d) as a contiguous tensor whose rows are multiples of 16 bytes, as the copy engine asks.

    The interpreter's products of bfloat16 are wrong: on a CPU it is given float32.
    """
    if not x.is_cuda:
        x = x.float()
    if missing := -x.shape[-1] % (16 // x.element_size()):
        x = torch.nn.functional.pad(x, (0, missing))
    x = x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


def _shaped(y: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Return what a kernel wrote in the shape and precision of the tensors that came in."""
    if y.shape[-1] != shape[-1]:  # without the columns that `_aligned` added
        y = y[..., : shape[-1]]
    return y if y.dtype == dtype else y.to(dtype)


def _padded_width(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def _matrix(tile: Tile, rows: int, padded_width: int, x: torch.Tensor) -> torch.Tensor | DescribedTensor:
    """Return x described to the copy engine in blocks of `rows`, where the tile has the host do that; else x itself."""
    if not tile.described:
        return x
    return DescribedTensor(x, (1, rows, padded_width) if padded_width else (1, rows))
