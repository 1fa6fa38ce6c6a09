"""What several claims compute with: the report's figures, GPT-2 as shapes, and the limits of its GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.tables.published import published
from labkit.theory.gpt import SIZES, flop_per_token, gpt

REPORT = "gpt2-2xh100"
GPUS = 2
H100: Any = limits.spec("NVIDIA H100 80GB HBM3")
LARGE = "GPT-2 Large"
MODELS = {name: gpt(*SIZES[name][:2]) for name in SIZES if name.startswith("GPT-2")}
MIB = 2**20
STATE_BYTES = 16  # per parameter in float32: itself, its gradient and AdamW's two states
_SHARDED_BYTES = {"fsdp_full": 16, "fsdp_grad": 12}  # of them; the report's gradient-only keeps the weights whole
_SAME = 0.02  # two figures that should be one differ by less


def printed(table: str, column: str, by: str = "strategy") -> pd.Series:
    """Return a column of one of the report's tables."""
    return published(f"gpt2_{table}").set_index(by)[column]


def stated(name: str) -> float:
    """Return a number that the report's text states."""
    return float(printed("statements", "value", "statement")[name])


def same(one: float, other: float) -> bool:
    return abs(other / one - 1) <= _SAME


def listed(values: Iterable[Any]) -> str:
    return ", ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in values)


def tokens_per_second() -> float:
    """Return the tokens per second of the baseline's printed seconds."""
    tokens = stated("timed steps") * stated("global batch") * stated("sequence")
    return tokens / printed("strategies", "train_seconds_20_steps")["baseline"]


def tflops(model: str, rate: float) -> float:
    """Return the TFLOP/s of a model that trains at a rate in tokens per second."""
    layers, hidden, _ = SIZES[model]
    return rate * flop_per_token(MODELS[model].parameters, layers, hidden, int(stated("sequence"))) / 1e12


def kept_share(strategy: str, gpus: Any) -> Any:
    """Return the share of 16 bytes per parameter that each of `gpus` GPUs keeps."""
    return 1 - _SHARDED_BYTES[strategy] / STATE_BYTES * (1 - 1 / gpus)


def memory_line() -> tuple[float, float]:
    """Return MB per sequence, and MB without any, of a line through the batches whose memory rises."""
    rows = published("gpt2_batch_size").query("memory_mb != 'OOM'").astype({"memory_mb": float})
    rising = rows[rows["memory_mb"] > rows["memory_mb"].min()]
    slope, start = np.polyfit(rising["batch"], rising["memory_mb"], 1)
    return float(slope), float(start)
