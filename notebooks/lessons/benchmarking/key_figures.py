"""What the node's card shows of lab 06: matrix products by precision, and whole training steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.key_figures import LOWER, KeyFigure, Measured, datasheet, on_one, repeats
from labkit.tables.rates import PEAK
from lessons.benchmarking.plan import Products

if TYPE_CHECKING:
    from labkit.engine.run import Run

_NAMES = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16"}
_LARGEST = "2.7b"


def card_plans() -> list[Products]:
    """Return what `make card` launches: the products."""
    return [Products.full() if Products.on_gpus() else Products.small(gpus=2, warm_ups=2, repeats=7)]


def _product(precision: str) -> Callable[[Run], Measured | None]:
    """Return how a run gives the rate of the GPU that multiplies most slowly while all GPUs multiply."""

    def measure(run: Run) -> Measured | None:
        rows = run.rows
        rows = rows[(rows["precision"] == precision) & ~rows["warm_up"].astype(bool) & (rows["status"] == "ok")]
        if rows.empty:
            return None
        medians, side = rows.groupby("rank")["ms"].transform("median"), int(rows["side"].iloc[0])
        slowest = rows[medians == medians.max()]["ms"]
        known = datasheet(run)
        made = Measured.of(slowest, on_one(run, f"{side} × {side}, all at the same time"))
        return made and made.rate(2 * side**3 / 1e9, known and known.tflops(PEAK[precision]))

    return measure


def _step(run: Run) -> Measured | None:
    knobs = {"model": _LARGEST, "precision": "autocast", "phase": "step", "mode": "compiled_graph"}
    return Measured.of(
        repeats(run, "ms", **knobs), f"{run.plan.samples} × {run.plan.sequence} tokens, compiled, one graph"
    )


KEY_FIGURES = (
    *(
        KeyFigure(f"matrix product, {name}, slowest GPU", "TFLOP/s", "products", _product(precision), least_gpus=_least)
        for (precision, name), _least in zip(_NAMES.items(), (0, 1, 1), strict=True)
    ),
    KeyFigure(f"training step, {_LARGEST}, autocast", "ms", "steps", _step, LOWER, least_gpus=1),
)
