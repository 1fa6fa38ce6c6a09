"""The kernels for Hopper as a function that autograd can call; other GPUs and other shapes get those of flash.py."""

from __future__ import annotations

import math
from functools import cache

import torch

from lessons.attention.worker import hopper_rows
from lessons.attention.worker.flash import TILED, Flash, Kernels
from lessons.attention.worker.launching import DescribedTensor, Launch, block_count, launch

ROWS = 128  # of the programs that prepare and finish; rows per head are padded to a multiple of it


def hopper(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Return the attention of q over k and v; dQ's last bits may differ from run to run."""
    return Flash.apply(q, k, v, is_causal, FAST)


def fits(q: torch.Tensor, k: torch.Tensor, causal: bool) -> bool:
    """Whether the kernels take (…, N, d): causal, bfloat16, as many keys as queries, d = 64, on Hopper."""
    if not (causal and q.is_cuda and q.dtype == torch.bfloat16 and q.shape == k.shape and q.shape[-1] == 64):
        return False
    return _is_hopper(q.get_device())


@cache
def _is_hopper(gpu: int) -> bool:
    return torch.cuda.get_device_capability(gpu) == (9, 0)  # later GPUs have other tensor cores


def attention_forward(q, k, v, causal: bool, root: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and the row log-sum-exp of tensors of shape (…, N, d); `root` is 1/√d."""
    if not fits(q, k, causal):
        return TILED.forward(q, k, v, causal, root)
    from lessons.attention.worker import hopper_forward as kernel  # Gluon is there wherever they fit

    *of_heads, queries, _ = q.shape
    o, lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)

    def make() -> Launch:
        rows, columns = kernel.ROWS.value, kernel.COLUMNS.value
        described = _matrix(q, rows), _matrix(k, columns), _matrix(v, columns), _matrix(o, rows)
        heads = math.prod(of_heads)
        grid = (block_count(queries, kernel.GROUPS.value * rows) * heads, 1, 1)
        arguments = (*described, lse, queries, root * math.log2(math.e))
        return Launch(kernel.forward, grid, arguments, (math.gcd(heads, kernel.SIDE_BY_SIDE),), kernel.OPTIONS)

    launch(("forward", q.shape), (q, k, v, o, lse), make)
    return o, lse


def attention_backward(
    q, k, v, o, do, lse, causal: bool, root: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dQ, dK and dV."""
    if not fits(q, k, causal):
        return TILED.backward(q, k, v, o, do, lse, causal, root)
    from lessons.attention.worker import hopper_backward as kernel

    shape, (queries, width) = q.shape, q.shape[-2:]
    heads, padded = math.prod(shape[:-2]), block_count(queries, ROWS) * ROWS
    rows_grid, constants, rows = (padded // ROWS, heads, 1), (width, ROWS), kernel.ROWS.value
    of_rows = torch.empty((2, heads, padded), dtype=torch.float32, device=q.device)
    sums = torch.empty(shape, dtype=torch.float32, device=q.device)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    def prepare() -> Launch:
        return Launch(hopper_rows.prepare, rows_grid, (o, do, lse, of_rows, sums, queries, padded), constants)

    def one_pass() -> Launch:
        described = [_matrix(x, rows) for x in (q, k, v, do, dk, dv, sums)]
        grid = (block_count(queries, kernel.GROUPS.value * kernel.COLUMNS.value) * heads, 1, 1)
        numbers = (queries, padded, heads, root * math.log2(math.e), root)
        arguments = (*described, DescribedTensor(of_rows, (rows,), 0), *numbers)
        return Launch(kernel.backward, grid, arguments, (math.gcd(heads, kernel.SIDE_BY_SIDE),), kernel.OPTIONS)

    def finish() -> Launch:
        return Launch(hopper_rows.finish, rows_grid, (sums, dq, queries, root), constants)

    launch(("prepare", shape), (o, do, lse, of_rows, sums), prepare)
    launch(("one pass", shape), (q, k, v, do, dk, dv, sums, of_rows), one_pass)
    launch(("finish", shape), (sums, dq), finish)
    return dq, dk, dv


FAST = Kernels(attention_forward, attention_backward)


def _matrix(x: torch.Tensor, rows: int) -> DescribedTensor:
    """Return x (heads, N, d) described to the copy engine in blocks of `rows`."""
    return DescribedTensor(x, (1, rows, x.shape[-1]), 128)
