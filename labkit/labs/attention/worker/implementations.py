"""Every attention by name: a function of q, k, v (…, N, d) and is_causal."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from labkit.labs.attention.worker.flash import flash
from labkit.labs.attention.worker.plain import by_hand, plain
from labkit.labs.attention.worker.tiled import tiled

OWN = {"plain": plain, "by_hand": by_hand, "tiled": tiled, "flash": flash}
TORCH = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@cache
def implementation(name: str) -> Callable[..., torch.Tensor]:
    """Give the attention of this name: ours, or torch's scaled_dot_product_attention held to one of its kernels.

    "compiled" is plain attention under torch.compile, one graph a shape: it recompiles rather than generalise.
    """
    if name == "compiled":
        torch._dynamo.config.recompile_limit = 64
        torch._functorch.config.donated_buffer = False  # or a backward could not be timed twice over one forward
        return torch.compile(plain, dynamic=False)
    return OWN.get(name) or _held_to(TORCH[name])


def _held_to(kernel: SDPBackend) -> Callable[..., torch.Tensor]:
    def attention(q, k, v, is_causal=False):
        with sdpa_kernel(kernel):
            return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return attention
