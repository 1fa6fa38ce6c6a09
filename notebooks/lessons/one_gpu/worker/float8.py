"""The blocks' products in float8: half of bfloat16's bytes and, on Hopper, twice its rate, 2 or 3 bits of mantissa.

Float8 spans a small range, so every tensor is divided by a scale of its own: its largest value becomes the format's.
Activations and weights are e4m3 (3 bits of mantissa), gradients e5m2 (a wider range, 2 bits), as in Micikevicius and
others, "FP8 Formats for Deep Learning" (2022). Tensor cores take both factors only row by row along the summed axis:
what is a factor of two products is written a second time, transposed. Finding the largest value is a pass over memory
of its own, 8 % of a step on an H100; the scales of earlier steps would save it, and would have to be kept and started.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
BLOCK = 64  # rows and columns that a program casts


class Cast(NamedTuple):
    """A matrix in float8, and the number that it is to be multiplied by."""

    values: torch.Tensor
    scale: torch.Tensor


@triton.jit
def cast_kernel(X, SCALE, ROWS, COLUMNS, M, K, TOP: tl.constexpr, BLOCK: tl.constexpr):
    """ROWS = X / SCALE rounded to float8, COLUMNS its transpose. One program, one block: X is read once."""
    r, c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r, c = r.to(tl.int64)[:, None], c.to(tl.int64)[None, :]
    here = (r < M) & (c < K)
    x = tl.load(X + r * K + c, here, 0.0).to(tl.float32) / tl.load(SCALE)
    x = tl.minimum(tl.maximum(x, -TOP), TOP).to(ROWS.dtype.element_ty)  # rounding may have passed the largest
    tl.store(ROWS + r * K + c, x, here)
    tl.store(COLUMNS + c * M + r, x, here)


def cast(x: torch.Tensor, dtype: torch.dtype) -> tuple[Cast, Cast]:
    """Return x (M, K) in float8, scaled by its largest value, and its transpose (K, M).

    Raises TypeError unless x is bfloat16: Triton 3.6 stores the transpose of a float32 matrix wrongly (H200).
    """
    if x.dtype != torch.bfloat16:
        raise TypeError(f"x is {x.dtype}: torch.bfloat16 is what is cast")
    (m, k), top = x.shape, torch.finfo(dtype).max
    scale = torch.linalg.vector_norm(x, torch.inf).float().clamp(min=1e-20) / top
    rows, columns = (torch.empty(shape, dtype=dtype, device=x.device) for shape in ((m, k), (k, m)))
    grid = triton.cdiv(k, BLOCK), triton.cdiv(m, BLOCK)
    cast_kernel[grid](x, scale, rows, columns, m, k, TOP=top, BLOCK=BLOCK, num_warps=4)
    return Cast(rows, scale), Cast(columns, scale)


def product(a: Cast, b: Cast, **options: Any) -> torch.Tensor:
    """Return a · bᵀ in bfloat16, of a (M, K) and b (N, K)."""
    return torch._scaled_mm(a.values, b.values.T, a.scale, b.scale, out_dtype=torch.bfloat16, **options)


def float8_linear(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, tuple[Cast, Cast]]:
    """Return x · Wᵀ + bias of a Layer of by_hand.py, and what its backward needs of the factors: both transposed."""
    (rows, columns), (weight, transposed) = cast(x, VALUES), cast(layer.weight, VALUES)
    return product(rows, weight, bias=layer.bias, use_fast_accum=True), (columns, transposed)


def float8_linear_back(layer: Any, d: torch.Tensor, factors: tuple[Cast, Cast]) -> torch.Tensor:
    """Return the gradient of x, of the output's gradient `d`; the weight's goes where it belongs."""
    x, weight = factors
    rows, columns = cast(d, GRADIENTS)
    product(columns, x, out=layer.d_weight)
    return product(rows, weight)
