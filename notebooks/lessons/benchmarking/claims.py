"""What a report says of its timed transformers, recomputed from its own tables and from datasheets."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.node import limits
from labkit.tables.claims import Figures, within
from labkit.tables.published import H100, published
from labkit.theory.transformer import SIZES
from lessons.benchmarking.theory import forward_tflop

_A100: Any = limits.spec("NVIDIA A100-SXM4-80GB")
_ONLY_BACKWARD = 3  # times a forward: twice the FLOP, and half as much again for what else there is
_SAME_LAYER = 1.25  # the most over the least milliseconds per layer that still count as one figure
_LAUNCH_BOUND = ["small", "medium", "large", "xl"]


def _printed(phase: str, gpu: str = "H100") -> pd.DataFrame:
    """Return the printed float32 steps of one phase: a row per model, ms."""
    table = published("transformer_steps")
    chosen = (table["phase"] == phase) & (table["gpu"] == gpu) & (table["precision"] == "float32")
    rows = table[chosen].set_index("model")
    return pd.DataFrame({"ms": 1e3 * rows["seconds"]})


def _compile(mode: str, phase: str) -> pd.Series:
    """Return the printed milliseconds of the table of torch.compile, by model."""
    table = published("transformer_compile")
    return 1e3 * table[(table["mode"] == mode) & (table["phase"] == phase)].set_index("model")["seconds"]


def _per_layer(ms: pd.Series) -> pd.Series:
    """Return the milliseconds per layer of the four smaller models."""
    return pd.Series({model: ms[model] / SIZES[model][2] for model in _LAUNCH_BOUND})


def _flat(ms: pd.Series) -> bool:
    each = _per_layer(ms)
    return each.max() < _SAME_LAYER * each.min()


def _two(first: float, second: float) -> str:
    return f"{first:.0f} and {second:.0f} ms"


def _least_ms(model: str, forwards: int) -> tuple[float, float]:
    """Return the least ms of a model's float32 FLOP, as many as of `forwards`, on an H100 and on an A100."""
    flop = 1e3 * forwards * forward_tflop(model)
    return flop / H100.fp32_tflops, flop / _A100.fp32_tflops


def _on_both(phase: str, model: str) -> tuple[float, float]:
    """Return the printed ms of a phase on an H100 and on an A100."""
    return _printed(phase)["ms"][model], _printed(phase, "A100")["ms"][model]


def _gains() -> pd.Series:
    """Return how many times as fast the printed forwards are when compiled."""
    return _compile("eager", "forward") / _compile("compiled", "forward")


def _most_gains() -> pd.Series:
    """Return how many times as fast they can be at most: in the least time of their float32 FLOP on an H100."""
    eager = _compile("eager", "forward")
    return eager / pd.Series({model: _least_ms(model, 1)[0] for model in eager.index})


FIGURES = {
    "layers_not_parameters": Figures(
        lambda: round(_printed("forward")["ms"]["2.7b"] / _printed("forward")["ms"]["xl"], 2),
        lambda: SIZES["2.7b"][2] / SIZES["xl"][2],
        lambda printed, by_layers: within(_SAME_LAYER)(printed, by_layers) and _flat(_printed("forward")["ms"]),
    ),
    "slower_h100": Figures(
        lambda: _two(*_on_both("forward", "small")),
        lambda: _two(*_least_ms("small", 1)),
        lambda *_: all(_on_both("forward", "small")[at] > 2 * _least_ms("small", 1)[at] for at in (0, 1)),
    ),
    "two_gpus": Figures(
        lambda: _two(*_on_both("backward", "2.7b")),
        lambda: _two(*_least_ms("2.7b", 2)),
        lambda *_: all(_on_both("backward", "2.7b")[at] >= _least_ms("2.7b", 2)[at] for at in (0, 1)),
    ),
    "compiling_removes_launches": Figures(
        lambda: f"{_gains()['small']:.1f} to {_gains()['2.7b']:.1f} ×",
        lambda: f"at most {_most_gains()['small']:.1f} to {_most_gains()['2.7b']:.1f} ×",
        lambda *_: True if (_gains() <= _most_gains()).all() else None,
    ),
    "only_backward": Figures(
        lambda: round((_compile("compiled", "backward") / _compile("compiled", "forward"))["2.7b"], 2),
        lambda: 2.0,
        lambda printed, _: True if printed < _ONLY_BACKWARD else None,
    ),
}
