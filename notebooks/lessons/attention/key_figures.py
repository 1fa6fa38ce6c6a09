"""What the node's card shows of lab 08: forward + backward of FlashAttention and of torch's own kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import KeyFigure, Measured, datasheet
from lessons.attention.plan import Race
from lessons.attention.theory import flops

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SEQUENCE = 16384
_SHOWN = (("flash", 64, "FlashAttention in Triton"), ("sdpa_cudnn", 128, "cuDNN's attention"))


def card_plans() -> list[Race]:
    """Return what `make card` launches; without a GPU nothing, because Triton's interpreter says nothing of speed."""
    kernels = tuple(kernel for kernel, *_ in _SHOWN)
    return [Race.full(implementations=kernels, sequences=(_SEQUENCE,), captured=0)] if Race.on_gpus() else []


def _tflops(implementation: str, head_dim: int) -> Callable[[Run], Measured | None]:
    def measure(run: Run) -> Measured | None:
        rows = run.rows
        point = (rows["implementation"] == implementation) & (rows["head_dim"] == head_dim)
        point &= (rows["sequence"] == _SEQUENCE) & (rows["precision"] == "bfloat16") & (rows["clock"] == "launched")
        rows = rows[point & (rows["phase"] == "both") & (rows["status"] == "ok")]
        if rows.empty:
            return None
        row = rows.iloc[-1]
        heads, known = int(row["heads"]), datasheet(run)
        setting = f"N 16 384, d {head_dim}, {heads} heads, causal, bfloat16"
        times = Measured(row["ms"], row["low_ms"], row["high_ms"], int(row["repeats"]), setting)
        work = flops("both", _SEQUENCE, _SEQUENCE, head_dim, causal=bool(row["causal"]), heads=heads)
        return times.rate(work / 1e9, known and known.bf16_tflops)

    return measure


KEY_FIGURES = tuple(
    KeyFigure(f"{name}, forward + backward", "TFLOP/s", "race", _tflops(kernel, width), least_gpus=1)
    for kernel, width, name in _SHOWN
)
