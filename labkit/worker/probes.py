"""Short measurements of a worker's host and GPU, which tell whether two runs can be compared.

They leave nothing behind: no memory in torch's caches, no counted peak, no random number drawn.
"""

from __future__ import annotations

from time import perf_counter  # a lab may patch the module's
from typing import Any

import torch

CALLS = 4096  # of an empty function between two looks at the clock
CALLS_SECONDS = 0.02
QUEUED_KERNELS = 256  # kernels in the queue at most, which holds 1024: the host never waits for the GPU
ENQUEUE_SECONDS = 0.04
COPY_BYTES, COPIES = 64 * 2**20, 8


def probe(device: torch.device) -> dict[str, float]:
    """Return python_call_ns, and of a GPU enqueue_us and pinned_copy_gb_per_s, as far as they can be measured.

    All ranks call it at the same time: the host's cores and links are shared then as they are while points are
    measured. Means over 20 and 40 ms, so that the time in which another process has the core is counted.
    """
    measured = {"python_call_ns": round(python_call_ns(), 2)}
    if device.type == "cuda":
        for name, measure in (("enqueue_us", enqueue_us), ("pinned_copy_gb_per_s", pinned_copy_gb_per_s)):
            try:
                measured[name] = round(measure(device), 3)
            except RuntimeError:  # no memory is left on the GPU, or none may be pinned
                continue
    return measured


def python_call_ns() -> float:
    """Return the nanoseconds that a call of an empty Python function takes, the loop included."""

    def nothing() -> None:
        pass

    calls, begun = 0, perf_counter()
    while (seconds := perf_counter() - begun) < CALLS_SECONDS:
        for _ in range(CALLS):
            nothing()
        calls += CALLS
    return 1e9 * seconds / calls


def enqueue_us(device: torch.device) -> float:
    """Return the microseconds in which the host enqueues one addition of a number to a tensor of one element."""
    before = _reserved_bytes(device)
    number = torch.zeros(1, device=device)
    number += 1  # the kernel is loaded
    torch.cuda.synchronize(device)
    enqueued, seconds, deadline = 0, 0.0, perf_counter() + ENQUEUE_SECONDS
    while perf_counter() < deadline or not enqueued:
        begun = perf_counter()
        for _ in range(QUEUED_KERNELS):
            number += 1
        seconds += perf_counter() - begun
        enqueued += QUEUED_KERNELS
        torch.cuda.synchronize(device)
    del number
    _release_memory(device, before)
    return 1e6 * seconds / enqueued


def pinned_copy_gb_per_s(device: torch.device) -> float:
    """Return the rate of copies of 64 MiB from pinned host memory to the GPU, in GB/s (10^9 bytes per second)."""
    before = _reserved_bytes(device)
    cudart: Any = torch.cuda.cudart()
    host, gpu = torch.zeros(COPY_BYTES, dtype=torch.uint8), torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    if int(cudart.cudaHostRegister(host.data_ptr(), COPY_BYTES, 0)):  # torch's own pinned memory would stay cached
        raise RuntimeError("the driver pins no memory")
    try:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        gpu.copy_(host, non_blocking=True)
        begin.record()
        for _ in range(COPIES):
            gpu.copy_(host, non_blocking=True)
        end.record()
        torch.cuda.synchronize(device)
        seconds = begin.elapsed_time(end) / 1e3
    finally:
        torch.cuda.synchronize(device)
        cudart.cudaHostUnregister(host.data_ptr())
        del gpu
        _release_memory(device, before)
    return COPIES * COPY_BYTES / seconds / 1e9


def _reserved_bytes(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device)


def _release_memory(device: torch.device, reserved_before: int) -> None:
    """Give back what the probe has reserved, and count peaks anew, where nothing was there before."""
    if not reserved_before:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.reset_accumulated_memory_stats(device)
