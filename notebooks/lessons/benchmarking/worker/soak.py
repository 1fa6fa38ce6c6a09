"""Lab 06, full load for minutes: products without a pause, beside a pattern that has to be there at the end."""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch

from labkit.engine.worker import Worker
from labkit.theory.sizes import GIB, MIB

_BURST_S = 1.0  # between two rows
_ODD = 0x1E3779B97F4A7C15  # a word is its place times this number: neighbours share no bits


class Soak:
    """Two factors, and chunks of a pattern in the share of the memory that the plan names."""

    def __init__(self, worker: Worker):
        plan, self.device = worker.plan, worker.device
        on_gpu = self.device.type == "cuda"
        dtype = torch.bfloat16 if on_gpu else torch.float32
        sides = (plan.side, plan.side)
        self.factor, self.other, self.product = (torch.randn(sides, device=self.device, dtype=dtype) for _ in range(3))
        free_bytes = torch.cuda.mem_get_info(self.device)[0] if on_gpu else 64 * MIB
        self.chunk_bytes = GIB if on_gpu else 16 * MIB
        self.chunks = [self._words(k) for k in range(int(plan.memory_share * free_bytes / self.chunk_bytes))]
        torch.mm(self.factor, self.other, out=self.product)  # the first one of a process takes longer
        self.iteration, self.begun_s = 0, time.monotonic()

    def _words(self, chunk: int) -> torch.Tensor:
        count = self.chunk_bytes // 8
        return torch.arange(chunk * count, (chunk + 1) * count, dtype=torch.int64, device=self.device).mul_(_ODD)

    def wrong_words(self) -> int:
        """Return how many words of 8 bytes are not what was written."""
        return sum(int((kept != self._words(k)).sum()) for k, kept in enumerate(self.chunks))


def prepare(worker: Worker) -> Soak:
    """Write the pattern."""
    return Soak(worker)


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Multiply for a minute, a row a second: `at_s` since the first, and TFLOP/s; at the end, read the pattern back."""
    plan, state = worker.plan, worker.state
    flop, bursts_s = 2 * plan.side**3, time.monotonic() + plan.minute_s
    with worker.clock() as timing:
        torch.mm(state.factor, state.other, out=state.product)
    count = max(1, round(min(_BURST_S, plan.minute_s / 3) / timing.seconds))
    while time.monotonic() < bursts_s:
        with worker.clock() as timing:
            for _ in range(count):
                torch.mm(state.factor, state.other, out=state.product)
        at_s = time.monotonic() - state.begun_s
        worker.record(iteration=state.iteration, at_s=at_s, tflops=count * flop / timing.seconds / 1e12)
        state.iteration += 1
    if point.minute == plan.minutes - 1:
        pattern = {"pattern_gib": len(state.chunks) * state.chunk_bytes / GIB, "wrong_words": state.wrong_words()}
        worker.record(iteration=state.iteration, at_s=time.monotonic() - state.begun_s, **pattern)
