"""Every attention by name: ours, torch's, and those with a bug.

The bugs are a short forward kernel whose steps can be left out, and a backward that is not ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import torch
import triton
import triton.language as tl
from torch._functorch import config as functorch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from labkit.engine.called_function import load_function
from lessons.attention.worker import flash, hopper
from lessons.attention.worker.plain import by_hand, plain, scores, tiled

OWN = {
    "plain": plain,
    "by_hand": by_hand,
    "tiled": tiled,
    "flash": flash.flash,
    "hopper": hopper.hopper,
}
TORCH = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
}


@cache
def implementation(name: str, yours: str = "") -> Callable[..., torch.Tensor]:
    """Return the attention of this name: ours, or torch's scaled_dot_product_attention held to one of its kernels.

    "yours" are tiles in PyTorch, each added by the `add_tile` of a student's file. "compiled" is plain attention under
    torch.compile, one graph a shape: it recompiles rather than generalise.
    """
    if name == "yours":
        return partial(tiled, step=load_function(Path(yours), "add_tile"))
    if name == "compiled":
        torch._dynamo.config.recompile_limit = 64
        functorch.donated_buffer = False  # or a backward could not be timed twice over one forward
        return torch.compile(plain, dynamic=False)
    return OWN.get(name) or _with_backend(TORCH[name])


def _with_backend(kernel: SDPBackend) -> Callable[..., torch.Tensor]:
    def attention(q, k, v, is_causal=False):
        with sdpa_kernel(kernel):
            return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return attention


TILE = 16


@triton.jit
def simple(
    Q, K, V, O, L, n, scale,
    D: tl.constexpr, TILE: tl.constexpr, CAUSAL: tl.constexpr, DIAGONAL: tl.constexpr, RESCALED: tl.constexpr,
):  # fmt: skip
    """Return O and L of TILE queries of one head, with plain pointers; what is not DIAGONAL or RESCALED is a bug."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows, width = block * TILE + tl.arange(0, TILE), tl.arange(0, D)
    q = tl.load(Q + head * n * D + rows[:, None] * D + width[None, :], mask=rows[:, None] < n, other=0.0)
    m = tl.full([TILE], float("-inf"), tl.float32)
    l = tl.zeros([TILE], tl.float32)
    o = tl.zeros([TILE, D], tl.float32)
    end = block + 1 if CAUSAL else tl.cdiv(n, TILE)
    for tile in range(end):
        columns = tile * TILE + tl.arange(0, TILE)
        at = head * n * D + columns[:, None] * D + width[None, :]
        k = tl.load(K + at, mask=columns[:, None] < n, other=0.0)
        v = tl.load(V + at, mask=columns[:, None] < n, other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        seen = columns[None, :] < n
        if CAUSAL and DIAGONAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        s = tl.where(seen, s, float("-inf"))
        highest = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - highest[:, None])
        if RESCALED:
            l = l * tl.exp(m - highest)
            o = o * tl.exp(m - highest)[:, None]
        l = l + tl.sum(p, 1)
        o = tl.dot(p, v, o, input_precision="ieee")
        m = highest
    tl.store(O + head * n * D + rows[:, None] * D + width[None, :], o / l[:, None], mask=rows[:, None] < n)
    tl.store(L + head * n + rows, m + tl.log(l), mask=rows < n)


class Variant(flash.Flash):
    """The right attention of (heads, N, d) in float32, d a power of 2, from which a variant departs."""

    CHANGED: ClassVar[dict[str, bool]] = {}

    @classmethod
    def run(cls, q, k, v, is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return O and L as the short kernel computes them."""
        heads, n, width = q.shape
        o, lse = torch.empty_like(q), q.new_empty(heads, n)
        steps = {"DIAGONAL": True, "RESCALED": True} | cls.CHANGED
        kernel: Any = simple  # its constants are plain numbers to the one who launches it
        kernel[triton.cdiv(n, TILE), heads](
            q, k, v, o, lse, n, 1 / math.sqrt(width), D=width, TILE=TILE, CAUSAL=is_causal, **steps
        )
        return o, lse

    @staticmethod
    def changed(steps: dict[str, bool]) -> type[Variant]:
        """Return the variant whose kernel runs with these steps."""

        class Changed(Variant):
            CHANGED = steps

            @staticmethod
            def forward(ctx, q, k, v, is_causal=False):
                o, lse = Changed.run(q, k, v, is_causal)
                ctx.save_for_backward(q, k, v, o, lse)
                ctx.is_causal, ctx.root, ctx.shapes, ctx.dtype = is_causal, q.shape[-1] ** -0.5, (q.shape,) * 2, q.dtype
                ctx.kernels = flash.TILED
                return o

        return Changed


class SquareBackward(flash.Flash):
    """Our forward, and a backward that has all of P at once."""

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        root = q.shape[-1] ** -0.5
        p = (scores(q, k, ctx.is_causal) - lse[..., None]).exp()
        ds = p * (do @ v.transpose(-1, -2) - (do * o).sum(-1, keepdim=True))
        return ds @ k * root, ds.transpose(-1, -2) @ q * root, p.transpose(-1, -2) @ do, None


ATTENTIONS = {
    "right": flash.flash,
    "no_diagonal_mask": Variant.changed({"DIAGONAL": False}).apply,
    "not_rescaled": Variant.changed({"RESCALED": False}).apply,
    "square_backward": SquareBackward.apply,
}
