"""Launches and work before anything runs: a queue between host and GPU, attention's parts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.theory.transformer import SIZES, forward_flop, transformer

NAMES = {  # phases and modes, as sentences and charts call them
    "forward": "forward",
    "both": "forward + backward",
    "step": "AdamW step",
    "eager": "eager",
    "graph": "CUDA graph",
    "compiled": "compiled",
    "compiled_graph": "compiled in a CUDA graph",
}
PRECISION_NAMES = {"float32": "float32", "tf32": "TF32", "autocast": "bfloat16"}
FAMILIES: tuple[str, ...] = (
    "matmul",
    "attention",
    "elementwise",
    "reduce/norm",
    "copy",
    "optimizer",
    "other",
)  # of kernels
FORWARDS = {"forward": 1, "both": 3, "step": 3}  # a backward takes as many FLOP as two forwards


def parameters_of(model: str) -> int:
    """Return the parameters of one of the five sizes."""
    hidden, inner, layers, _ = SIZES[model]
    return transformer(hidden, inner, layers).parameters


def forward_tflop(model: str) -> float:
    """Return the TFLOP of one forward of one of the five sizes, batch 4 and context 128 as the report has it."""
    hidden, inner, layers, _ = SIZES[model]
    return forward_flop(transformer(hidden, inner, layers), hidden, 128, 4) / 1e12


@dataclass(frozen=True)
class Queue:
    """A host that launches kernels, one every `launch_us`, and a GPU that runs each for `kernel_us`, in order."""

    kernels: int
    launch_us: float
    kernel_us: float

    @property
    def spans(self) -> list[tuple[float, float, float]]:
        """When each kernel is launched, starts and ends, in µs: it starts when it is launched and the GPU is free."""
        spans, free = [], 0.0
        for number in range(1, self.kernels + 1):
            launched = number * self.launch_us
            begun = max(launched, free)
            free = begun + self.kernel_us
            spans.append((launched, begun, free))
        return spans

    @property
    def end_us(self) -> float:
        """When the last kernel is done: the slower of both goes through, the other one waits."""
        rest = self.kernels - 1
        return self.launch_us + self.kernel_us + rest * max(self.launch_us, self.kernel_us)

    @property
    def idle_share(self) -> float:
        """Which share of the time the GPU has nothing to do."""
        return 1 - self.kernels * self.kernel_us / self.end_us

    @property
    def launch_bound(self) -> bool:
        return self.launch_us > self.kernel_us


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return slope and intercept of the least-squares line. Raises ValueError where all xs are one."""
    if len(set(xs)) < 2:
        raise ValueError("a line needs two different xs")
    fitted = statistics.linear_regression(xs, ys)
    return fitted.slope, fitted.intercept


SOFTMAX_FLOP = 5  # a score: compare, subtract, exponential, add, divide


def attention_work(
    samples: int, heads: int, sequence: int, width: int, element_bytes: int
) -> dict[str, dict[str, int]]:
    """Return `flop` and `moved_bytes` of Q·Kᵀ ("scores"), softmax, and the product with V ("values"), a kernel each.

    A product reads two matrices of sequence × width (or of scores and width) and writes the third; softmax reads and
    writes every score.
    """
    matrices = samples * heads
    scores, rows = matrices * sequence**2, matrices * sequence * width
    product = {"flop": 2 * scores * width, "moved_bytes": element_bytes * (2 * rows + scores)}
    softmax = {"flop": SOFTMAX_FLOP * scores, "moved_bytes": 2 * element_bytes * scores}
    return {"scores": product, "softmax": softmax, "values": product}
