"""DDP, our sharded optimizer and the stages of ZeRO: bytes a rank holds and sends, by formula."""

from __future__ import annotations

from typing import NamedTuple

STAGES = ("ddp", "ours", "zero1", "zero2", "zero3")
# Bytes an element of parameters, gradients, and what mixed precision's optimizer keeps besides its states: a float32
# copy of the parameters (Rajbhandari and others, "ZeRO", 2020: 2 + 2 + 12).
PRECISIONS = {"float32": (4, 4, 0), "bfloat16, float32 copies": (2, 2, 4)}


class Stage(NamedTuple):
    """What one rank holds, by use, and what it sends a step, in bytes."""

    parameters: float
    gradients: float
    states: float
    sent: float

    @property
    def held(self) -> float:
        return self.parameters + self.gradients + self.states


def stage(name: str, elements: float, ranks: int, state_bytes: int = 8, precision: str = "float32") -> Stage:
    """Give a stage's bytes for a model of so many elements.

    Sent is what passes a GPU's link in a ring: 2(N−1)/N of an all-reduce, (N−1)/N of a reduce-scatter or a gather.
    Ours all-reduces gradients and gathers parameters, 3 Ψ; ZeRO-1 scatters the gradients instead, 2 Ψ, as DDP sends;
    ZeRO-3 gathers parameters twice, 3 Ψ. In ZeRO-1, as in ours, a rank holds all gradients at the end of backward.
    """
    p, g, copy = PRECISIONS[precision]
    share = 1 / ranks
    parameters = p * elements * (share if name == "zero3" else 1)
    gradients = g * elements * (share if name in ("zero2", "zero3") else 1)
    states = (state_bytes + copy) * elements * (1 if name == "ddp" else share)
    volume = {"ddp": 2 * g, "ours": 2 * g + p, "zero1": g + p, "zero2": g + p, "zero3": g + 2 * p}[name]
    return Stage(parameters, gradients, states, volume * elements * (ranks - 1) / ranks)
