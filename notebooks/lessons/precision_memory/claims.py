"""What a report says of mixed precision and of memory, recomputed: formulas, its own tables, and recorded runs."""

from __future__ import annotations

from operator import eq

import pandas as pd

from labkit.engine.recordings import replay
from labkit.tables.claims import Figures, within
from labkit.tables.published import published
from labkit.theory.sizes import GB, MIB
from labkit.theory.step_memory import Shape
from labkit.theory.transformer import SIZES, VOCABULARY
from lessons.precision_memory.tables import dtypes
from lessons.precision_memory.theory.floats import WAYS, running

_RECORDED = "h200/precision_memory"
_SAMPLES = 4
_NEAR = within(1.02)  # two figures that differ by less are called the same
_CONTEXTS = (128, 256, 512)
_PRINTED_WAYS = [*WAYS][:4]
_RECORDED_STEPS = ("h100", "h200")  # of lab 06


def shape(sequence: int = 128, precision: str = "float32") -> Shape:
    hidden, inner, layers, heads = SIZES["2.7b"]
    return Shape(VOCABULARY, hidden, inner, layers, heads, _SAMPLES, sequence, precision)


def _printed(phase: str, sequence: int | None = None, precision: str = "float32", quantity: str = "peak") -> float:
    """Return a printed figure of the 2.7b model."""
    table = published("transformer_memory")
    rows = table[(table["phase"] == phase) & (table["precision"] == precision) & (table["quantity"] == quantity)]
    if sequence is not None:
        rows = rows[rows["context_length"] == sequence]
    return float(rows["value"].iloc[0])


def _with_copies() -> float:
    """Return the GB of the printed peak without mixed precision, and of autocast's copies of the weights."""
    return _printed("train_step", 128) + shape(precision="bfloat16").copies / GB


def _stated(statement: str) -> str:
    return str(published("transformer_statements").set_index("statement")["value"][statement])


def _first_step() -> float:
    """Return the GB of a step in whose update the optimizer states are made: 16 bytes a parameter."""
    return 16 * shape().parameters / GB


def _is_a_first_step() -> bool:
    """Return whether the printed peaks are those of a first step, at each context."""
    return all(_NEAR(_printed("train_step", context), _first_step()) for context in _CONTEXTS)


def _later_step() -> float:
    """Return the GB of a step that has optimizer states: 12 bytes a parameter, and what the printed forward keeps."""
    return _printed("forward", 512) + 8 * shape().parameters / GB


def _forward_alone() -> float:
    """Return the GB of a forward that keeps nothing: weights, and the largest tensors of one place in it."""
    model = shape(512)
    inside = 3 * 4 * model.inner + 2 * 4 * model.hidden
    scores = 2 * 4 * model.heads * model.sequence  # two N × N matrices per head, as plain attention makes them
    return (4 * model.parameters + model.tokens * max(inside, 8 * model.vocabulary, scores)) / GB


def _printed_slower() -> list[str]:
    """Return the models whose printed forward takes longer with mixed precision than in float32, smallest first."""
    steps = published("transformer_steps").query("gpu == 'A100' and phase == 'forward'")
    times = steps.pivot_table("seconds", "model", "precision", aggfunc="first")
    return [model for model in SIZES if times["bfloat16"][model] > times["float32"][model]]


def _recorded_slower(gpu: str) -> list[str]:
    """Return the models whose recorded forward takes longer with mixed precision, beyond the noise, smallest first.

    Eager steps of lab 06, which have the report's sizes, batch and context. Its host's speed changed between them:
    mixed precision has to take longer than the slower of float32 and TF32, which both cast nothing.
    """
    steps = replay(f"{gpu}/benchmarking/steps").medians(["model", "precision", "mode", "phase"], "ms")
    steps = steps.query("mode == 'eager' and phase == 'forward'").set_index(["precision", "model"])
    return [model for model in SIZES if is_slower(steps.xs(model, level="model"))]


def agreed(printed: set[str], recorded: list[set[str]]) -> bool | None:
    """Return whether each recorded run has the printed models (True), none has any of them (False), or neither."""
    if all(printed <= slower for slower in recorded):
        return True
    return None if any(printed & slower for slower in recorded) else False


def is_slower(steps: pd.DataFrame) -> bool:
    """Return whether a model's forward takes longer with mixed precision; takes ms and spread_ms by precision."""
    mixed, plain = steps.loc["autocast"], steps.drop("autocast")
    return bool((mixed["ms"] - plain["ms"] > mixed["spread_ms"] + plain["spread_ms"]).all())


FIGURES = {
    "loss_is_float16": Figures(
        lambda: _stated("loss under autocast to float16"),
        lambda: dtypes(replay(f"{_RECORDED}/numbers")).set_index("what").loc["loss", "float16"],
        eq,
    ),
    "peak_with_mixed_precision": Figures(lambda: _printed("train_step", 128, "bfloat16"), _with_copies, _NEAR),
    "peak_of_a_step": Figures(
        lambda: _printed("train_step", 512),
        lambda: f"{_first_step():.1f} GB, if it is the first step; else {_later_step():.1f} GB",
        lambda *_: True if _NEAR(_printed("train_step", 512), _later_step()) else None if _is_a_first_step() else False,
    ),
    "forward_alone": Figures(
        lambda: _printed("forward", 512),
        _forward_alone,
        lambda printed, recomputed: True if _NEAR(printed, recomputed) else None,
    ),
    "slower_models": Figures(
        lambda: ", ".join(_printed_slower()) or "none",
        lambda: "; ".join(f"{', '.join(_recorded_slower(gpu)) or 'none'} ({gpu.upper()})" for gpu in _RECORDED_STEPS),
        lambda *_: agreed({*_printed_slower()}, [{*_recorded_slower(gpu)} for gpu in _RECORDED_STEPS]),
    ),
    "sums_of_a_hundredth": Figures(
        lambda: ", ".join(_stated(f"0.01 a thousand times: {way}") for way in _PRINTED_WAYS),
        lambda: ", ".join(f"{running(way)[-1]:.4f}" for way in _PRINTED_WAYS),
        eq,
    ),
    "largest_allocation": Figures(
        lambda: _printed("train_step", quantity="largest_allocation"),
        lambda: 4 * SIZES["2.7b"][0] * SIZES["2.7b"][1] / MIB,
        _NEAR,
    ),
}
