"""What a report says of mixed precision and of memory, recomputed: formulas, its own tables, and recorded runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.engine.run import replay
from labkit.tables.claims import Stated, within
from labkit.tables.published import published
from labkit.theory.transformer import SIZES, VOCABULARY
from lessons.precision_memory.tables import dtypes, published_speed, speed
from lessons.precision_memory.theory.floats import WAYS, running
from lessons.precision_memory.theory.memory import Shape, residual_bytes

_GB = 1e9
_RECORDED = "h200/precision_memory"
_SAMPLES = 4
_NEAR = within(1.02)  # two figures that differ by less are called the same
_CONTEXTS = (128, 256, 512)


def _shape(sequence: int = 128, precision: str = "float32") -> Shape:
    hidden, inner, layers, heads = SIZES["2.7b"]
    return Shape(VOCABULARY, hidden, inner, layers, heads, _SAMPLES, sequence, precision)


def _printed(phase: str, sequence: int | None = None, precision: str = "float32", quantity: str = "peak") -> float:
    """Return a printed figure of the 2.7b model."""
    table = published("transformer_memory")
    rows = table[(table["phase"] == phase) & (table["precision"] == precision) & (table["quantity"] == quantity)]
    if sequence is not None:
        rows = rows[rows["context_length"] == sequence]
    return float(rows["value"].iloc[0])


def _mixed_cost() -> float:
    """Return by how many percent the printed peak with mixed precision exceeds the one without."""
    return 100 * (_printed("train_step", 128, "bfloat16") / _printed("train_step", 128) - 1)


def _later_step() -> float:
    """Return the GB of a step that has optimizer states: 12 bytes a parameter, and what the printed forward keeps."""
    return _printed("forward", 512) + 8 * _shape().parameters / _GB


def _forward_alone() -> float:
    """Return the GB of a forward that keeps nothing: weights, and the largest tensors of one place in it."""
    shape = _shape(512)
    inside = 3 * 4 * shape.inner + 2 * 4 * shape.hidden
    scores = 2 * 4 * shape.heads * shape.sequence  # two N × N matrices per head, as plain attention makes them
    return (4 * shape.parameters + shape.tokens * max(inside, 8 * shape.vocabulary, scores)) / _GB


def _slower(table: pd.DataFrame) -> str:
    """Return the models whose forward takes longer with mixed precision than in float32, the smallest first."""
    rows = table[(table["phase"] == "forward") & (table["precision"] == "bfloat16") & (table["gain"] < 1)]
    return ", ".join(model for model in SIZES if model in set(rows["model"])) or "none"


_ABOUT: dict[str, Any] = {"report": "cs336-a2"}
_PEAKS: dict[str, Any] = _ABOUT | {"where": "table of peaks", "unit": "GB"}

CLAIMS = (
    Stated(
        name="loss_is_float16",
        where="data types under autocast",
        says="Under autocast to float16 the loss is float16",
        printed=lambda: "float16",
        recomputed=lambda: dtypes(replay(f"{_RECORDED}/numbers")).set_index("what").loc["loss", "float16"],
        recomputes="as recorded",
        holds=lambda printed, recomputed: printed == recomputed,
        reason="Cross-entropy is on autocast's list of operators that run in float32.",
        **_ABOUT,
    ),
    Stated(
        name="mixed_precision_under_ten_percent",
        where="text on mixed precision",
        says="Mixed precision raises the peak of a training step of 2.7b by less than 10 %",
        printed=lambda: "< 10 %",
        recomputed=lambda: f"{_mixed_cost():.1f} %",
        recomputes="from its own peaks",
        holds=lambda printed, recomputed: _mixed_cost() < 10,
        reason="They lie 12 % apart, by as much as autocast's copies of the weights take. Probably autocast was still "
        "open at the update.",
        **_ABOUT,
    ),
    Stated(
        name="copies_stay_to_the_update",
        where="table of peaks and text",
        says="With mixed precision a training step at context 128 peaks higher: the difference of both peaks",
        printed=lambda: _printed("train_step", 128, "bfloat16") - _printed("train_step", 128),
        recomputed=lambda: _shape(precision="bfloat16").copies / _GB,
        recomputes="bfloat16 copies of the weights",
        holds=_NEAR,
        reason="It is not the size of autocast's copies.",
        unit="GB",
        **_ABOUT,
    ),
    Stated(
        name="peak_of_a_first_step",
        says="A training step of 2.7b peaks at 55.2 to 55.3 GB at contexts 128, 256 and 512",
        printed=lambda: _printed("train_step", 512),
        recomputed=lambda: 16 * _shape().parameters / _GB,
        recomputes="a first step's update, 16 bytes per parameter",
        holds=lambda printed, due: all(_NEAR(_printed("train_step", context), due) for context in _CONTEXTS),
        reason="The peaks hardly change with the context: the update needs these bytes when no activation is left.",
        **_PEAKS,
    ),
    Stated(
        name="peak_of_a_later_step",
        says="A training step of 2.7b peaks at 55.3 GB at context 512",
        printed=lambda: _printed("train_step", 512),
        recomputed=_later_step,
        recomputes="what the printed forward holds, and AdamW's states of 8 bytes per parameter",
        holds=_NEAR,
        reason="From the second step on, AdamW's states lie beside the activations that the printed forward keeps. "
        "The report does not say which step.",
        **_PEAKS,
    ),
    Stated(
        name="forward_alone",
        says="The forward of 2.7b peaks at 42.7 GB at context 512",
        printed=lambda: _printed("forward", 512),
        recomputed=_forward_alone,
        recomputes="a forward that keeps nothing",
        holds=lambda printed, recomputed: True if _NEAR(printed, recomputed) else None,
        reason="The printed forward kept its activations. Our recorded forward that keeps them peaks at 30.1 GB; "
        "plain attention's scores can be most of the rest.",
        **_PEAKS,
    ),
    Stated(
        name="slower_models",
        where="table of times on an A100",
        says="With mixed precision a forward takes longer for at least these models",
        printed=lambda: _slower(published_speed(published("transformer_steps"))),
        recomputed=lambda: _slower(speed(replay(f"{_RECORDED}/speed"))),
        recomputes="recorded on an H200",
        holds=lambda printed, recomputed: {*printed.split(", ")} <= {*recomputed.split(", ")},
        reason="Other models are slower on the recorded node.",
        **_ABOUT,
    ),
    Stated(
        name="sums_of_a_hundredth",
        where="sums in four pairs of types",
        says="0.01 added a thousand times",
        printed=lambda: "10.0001, 9.9531, 10.0021, 10.0021",
        recomputed=lambda: ", ".join(f"{running(way)[-1]:.4f}" for way in list(WAYS)[:4]),
        recomputes="simulated rounding",
        holds=lambda printed, recomputed: printed == recomputed,
        reason="Simulated rounding gives other digits.",
        chosen=False,
        **_ABOUT,
    ),
    Stated(
        name="residual_tensor",
        where="text on memory",
        says="The tensor that runs through all blocks takes 5.0 MB at context 128",
        printed=lambda: f"{_printed('train_step', 128, quantity='residual_tensor'):.1f} MB",
        recomputed=lambda: f"{residual_bytes(_SAMPLES, 128, SIZES['2.7b'][0]) / 2**20:.1f} MiB",
        recomputes="the report writes MB",
        holds=lambda printed, recomputed: printed.split()[0] == recomputed.split()[0],
        reason="samples × context × hidden × 4 bytes is another size.",
        chosen=False,
        **_ABOUT,
    ),
    Stated(
        name="largest_allocation",
        where="snapshot of a forward",
        says="The largest allocations take 100 MiB: weights in the SwiGLU",
        printed=lambda: _printed("train_step", quantity="largest_allocation"),
        recomputed=lambda: 4 * SIZES["2.7b"][0] * SIZES["2.7b"][1] / 2**20,
        recomputes="a float32 matrix of the SwiGLU",
        holds=_NEAR,
        reason="A float32 matrix of the SwiGLU has another size.",
        unit="MiB",
        chosen=False,
        **_ABOUT,
    ),
)
