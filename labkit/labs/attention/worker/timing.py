"""How attentions are timed, and which ones there are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache

import torch
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from labkit.engine.worker import Worker
from labkit.labs.attention.worker.flash import flash
from labkit.labs.attention.worker.plain import by_hand, plain, tiled

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


ON_CPU = {"warm_ups": 1, "repeats": 3}
UNSYNCHRONISED = 20
GRAPH_MS = 8  # one replay of the graph; there are ten


def launched(worker: Worker, work: Callable[[], object], repeat_ms: int) -> list[float]:
    """Give the milliseconds of each repetition, between two events on the GPU; the L2 cache is cleared before each.

    The events stand around what is launched: where the host takes longer to launch than the GPU to work, they tell
    the host's time (triton.testing.do_bench).
    """
    if worker.device.type == "cuda":
        return triton.testing.do_bench(work, warmup=repeat_ms // 2, rep=repeat_ms, return_mode="all")
    return [1e3 * run.seconds for run in worker.time(work, **ON_CPU) if not run.warm_up]


def captured(work: Callable[[], object]) -> list[float]:
    """Give the milliseconds of `work` in each replay of a CUDA graph of many: the GPU's time alone.

    Nothing is launched by the host meanwhile, and the L2 cache keeps what it has (triton.testing.do_bench_cudagraph).
    """
    return triton.testing.do_bench_cudagraph(work, rep=GRAPH_MS, return_mode="all")


def unsynchronised_ms(worker: Worker, work: Callable[[], object]) -> float:
    """Give the mean milliseconds that a clock shows which waits for nobody: what the host takes to launch `work`."""
    worker.synchronize()
    start = time.perf_counter()
    for _ in range(UNSYNCHRONISED):
        work()
    passed = time.perf_counter() - start
    worker.synchronize()
    return 1e3 * passed / UNSYNCHRONISED


def summary(times_ms: list[float]) -> dict[str, float]:
    """Give a row's median, its quartiles and the number of repetitions."""
    low, median, high = statistics.quantiles(times_ms, n=4) if len(times_ms) > 1 else times_ms * 3
    return {"ms": median, "low_ms": low, "high_ms": high, "repeats": len(times_ms)}
