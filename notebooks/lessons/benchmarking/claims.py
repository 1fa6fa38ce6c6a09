"""What a report says of its timed transformers, recomputed from its own tables and from datasheets."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.node import limits
from labkit.tables.claims import Stated, within
from labkit.tables.published import published
from labkit.theory.transformer import SIZES
from lessons.benchmarking.theory import forward_tflop, parameters_of

_H100: Any = limits.spec("NVIDIA H100 80GB HBM3")
_A100: Any = limits.spec("NVIDIA A100-SXM4-80GB")
_L1_BYTES = 256 * 1024  # of one multiprocessor of an H100, shared memory included (its architecture white paper)
_MULTIPROCESSORS = 132
_ONLY_BACKWARD = 3  # times a forward: twice the FLOP, and half as much again for what else there is
_NOISE = 10  # % of a mean: a standard deviation above it is not small
_SAME_LAYER = 1.25  # the most over the least milliseconds per layer that still count as one figure
_LAUNCH_BOUND = ["small", "medium", "large", "xl"]


def _printed(phase: str, gpu: str = "H100") -> pd.DataFrame:
    """Return the printed float32 steps of one phase: a row per model, ms and deviation_ms."""
    table = published("transformer_steps")
    chosen = (table["phase"] == phase) & (table["gpu"] == gpu) & (table["precision"] == "float32")
    rows = table[chosen].set_index("model")
    return pd.DataFrame({"ms": 1e3 * rows["seconds"], "deviation_ms": 1e3 * rows["seconds_std"]})


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


def _range(ms: pd.Series) -> str:
    each = _per_layer(ms)
    return f"{each.min():.2f} to {each.max():.2f} ms per layer"


def _two(first: float, second: float) -> str:
    return f"{first:.0f} and {second:.0f} ms"


def _least_ms(model: str, forwards: int) -> tuple[float, float]:
    """Return the least ms of a model's float32 FLOP, as many as of `forwards`, on an H100 and on an A100."""
    flop = 1e3 * forwards * forward_tflop(model)
    return flop / _H100.fp32_tflops, flop / _A100.fp32_tflops


def _on_both(phase: str, model: str) -> tuple[float, float]:
    """Return the printed ms of a phase on an H100 and on an A100."""
    return _printed(phase)["ms"][model], _printed(phase, "A100")["ms"][model]


def _gains() -> pd.Series:
    """Return how many times as fast the printed forwards are when compiled."""
    return _compile("eager", "forward") / _compile("compiled", "forward")


def _largest_deviation() -> float:
    table = _printed("backward")
    return float((100 * table["deviation_ms"] / table["ms"]).max())


_ABOUT: dict[str, Any] = {"report": "cs336-a2"}
_H100_TABLE, _BOTH_TABLES = "table of steps on an H100", "tables of steps, H100 and A100"
_COMPILE_TABLE = "table of torch.compile"

CLAIMS = (
    Stated(
        name="layers_not_parameters",
        where=_H100_TABLE,
        says="The forward of 2.7b is faster than that of xl",
        printed=lambda: _two(*_printed("forward")["ms"][["2.7b", "xl"]]),
        recomputed=lambda: _range(_printed("forward")["ms"]),
        recomputes="up to xl, the host's time; recorded on an H200, 2.7b is slower in float32",
        holds=lambda *_: _printed("forward")["ms"].idxmax() == "xl" and _flat(_printed("forward")["ms"]),
        reason="Up to xl, layers of 4 times the weights take as long: this host is slow. 2.7b waits more for the GPU.",
        **_ABOUT,
    ),
    Stated(
        name="slower_h100",
        where=_BOTH_TABLES,
        says="The forward of small takes 35 ms on an H100 and 28 ms on an A100",
        printed=lambda: _two(*_on_both("forward", "small")),
        recomputed=lambda: _two(*_least_ms("small", 1)),
        recomputes="least times of the FLOP: neither GPU is the limit, the faster host wins",
        holds=lambda *_: all(_on_both("forward", "small")[at] > 2 * _least_ms("small", 1)[at] for at in (0, 1)),
        reason="Neither GPU is the limit, so the faster host wins. This is so for medium and large, too.",
        **_ABOUT,
    ),
    Stated(
        name="two_gpus",
        where=_BOTH_TABLES,
        says="The backward of 2.7b takes 193 ms on an H100 and 676 ms on an A100",
        printed=lambda: _two(*_on_both("backward", "2.7b")),
        recomputed=lambda: _two(*_least_ms("2.7b", 2)),
        recomputes="least times of the FLOP: an A100 cannot reach 193 ms",
        holds=lambda *_: all(_on_both("backward", "2.7b")[at] >= _least_ms("2.7b", 2)[at] for at in (0, 1)),
        reason="Both are above their least times. One GPU could not give both: an A100 cannot reach the shorter one.",
        **_ABOUT,
    ),
    Stated(
        name="compiling_removes_launches",
        where=_COMPILE_TABLE,
        says="Compiling makes the forward 5.8 times (small) to 1.2 times (2.7b) as fast",
        printed=lambda: f"{_gains()['small']:.1f} to {_gains()['2.7b']:.1f} ×",
        recomputed=lambda: _range(_compile("eager", "forward")),
        recomputes="eager, up to xl: launches; 2.7b waits for the GPU",
        holds=lambda *_: _flat(_compile("eager", "forward")) and _gains().is_monotonic_decreasing,
        reason="Eager, a layer of four sizes takes the same time: launches. 2.7b has many, too, but waits for the GPU.",
        **_ABOUT,
    ),
    Stated(
        name="small_deviation",
        where="text on five warm-ups",
        says="After five warm-ups the standard deviation of backward is small",
        printed=lambda: None,
        recomputed=_largest_deviation,
        recomputes="of the mean, at most",
        holds=lambda _, recomputed: recomputed <= _NOISE,
        reason="It is 14 % or more of the mean at every size. No printed figure shows why.",
        unit="%",
        **_ABOUT,
    ),
    Stated(
        name="cache_is_full",
        where="text on two warm-ups",
        says="After two warm-ups the L1 cache is full",
        printed=lambda: None,
        recomputed=lambda: 4 * parameters_of("small") / (_L1_BYTES * _MULTIPROCESSORS),
        recomputes="weights of small over all L1 caches of an H100",
        holds=lambda _, recomputed: recomputed <= 1,
        reason="Each forward reads all weights, so no iteration leaves this cache warm for the next one.",
        unit="×",
        **_ABOUT,
    ),
    Stated(
        name="third_backward",
        where=_COMPILE_TABLE,
        says="The eager backward of 2.7b takes 464 ms",
        printed=lambda: float(round(_compile("eager", "backward")["2.7b"])),
        recomputed=lambda: _printed("backward")["ms"]["2.7b"],
        recomputes="its other table, on an H100",
        holds=within(1.25),
        reason="This table names no GPU. But both forwards are 6 % apart: the clocks hold different work.",
        unit="ms",
        **_ABOUT,
    ),
    Stated(
        name="only_backward",
        where=_COMPILE_TABLE,
        says="The compiled backward of 2.7b takes 439 ms, its forward 68 ms: the ratio",
        printed=lambda: round((_compile("compiled", "backward") / _compile("compiled", "forward"))["2.7b"], 2),
        recomputed=lambda: 2.0,
        recomputes="FLOP of a backward over those of a forward",
        holds=lambda printed, _: printed < _ONLY_BACKWARD,
        reason="At every size the ratio is 5.6 or more. Most likely this clock holds the optimizer's step, too.",
        unit="×",
        chosen=False,
        **_ABOUT,
    ),
)
