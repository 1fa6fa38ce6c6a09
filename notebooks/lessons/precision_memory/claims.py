"""What a report says of mixed precision and of memory, recomputed: formulas, its own tables, and a recorded step."""

from __future__ import annotations

from labkit.engine.run import replay
from labkit.tables.claims import claim
from labkit.tables.published import published
from labkit.theory.transformer import SIZES, VOCABULARY
from lessons.precision_memory.tables.numbers import dtypes
from lessons.precision_memory.theory.floats import VALUE, WAYS, running
from lessons.precision_memory.theory.memory import Shape, residual_bytes

_GB = 1e9
_RECORDED = "h200/precision_memory/numbers"
_SAMPLES = 4
_NEAR = 0.02  # two figures that differ by less are called the same


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


def _kept(sequence: int) -> float:
    """Return the GB by which a printed forward's peak exceeds the weights."""
    return _printed("forward", sequence) - 4 * _shape().parameters / _GB


@claim("cs336-a2", "0.01 added a thousand times gives 10.0001, 9.9531, 10.0021 and 10.0021 in four pairs of dtypes")
def sums_of_a_hundredth():
    """Simulated rounding gives the same digits."""
    printed = "10.0001, 9.9531, 10.0021, 10.0021"
    found = ", ".join(f"{running(way, VALUE)[-1]:.4f}" for way in list(WAYS)[:4])
    return printed, found, found == printed


@claim("cs336-a2", "under autocast to float16 the loss is float16")
def the_loss_is_float16():
    """Cross-entropy is on autocast's list of operators that run in float32. The recorded run on an H200 shows it, and
    the table of dtypes in this lesson is computed live."""
    found = dtypes(replay(_RECORDED)).set_index("what").loc["loss", "float16"]
    return "float16", found, found == "float16"


@claim("cs336-a2", "mixed precision costs less than 10 % more memory in a training step of 2.7b", "%")
def mixed_precision_costs_under_ten_percent():
    """The printed peaks, 61.998 and 55.246 GB, are 12 % apart. The difference, 6.75 GB, is what the copies take that
    autocast makes of the weights: two bytes for each element of a matrix that multiplies, 6.76 GB; two bytes for every
    parameter would be 6.81 GB."""
    plain, mixed = _printed("train_step", 128), _printed("train_step", 128, "bfloat16")
    copies = _shape(precision="bfloat16").copies / _GB
    explained = abs(copies / (mixed - plain) - 1) < _NEAR
    return "< 10 %", f"{100 * (mixed / plain - 1):.1f} %", mixed / plain < 1.10 if explained else None


@claim(
    "cs336-a2",
    "a training step of 2.7b, taken as its first, peaks at 55.2 to 55.3 GB at contexts 128, 256 and 512",
    "GB",
    explained=True,
)
def the_printed_peaks_are_the_first_steps():
    """The report does not say which step it is. The three peaks are within 2 % of 16 bytes per parameter: weights,
    gradients and two moments, which the update of a first step needs at any context. With the context they rise by 21
    and 39 MB, as the float32 logits do, so nearly all activations are gone. At contexts 128 and 256 later steps have
    the same peak in our recorded run."""
    printed, due = [_printed("train_step", context) for context in (128, 256, 512)], 16 * _shape().parameters / _GB
    return printed[-1], due, all(abs(due / peak - 1) < _NEAR for peak in printed)


@claim("cs336-a2", "at context 512 each later training step of 2.7b, too, needs 55.3 GB", "GB")
def a_steady_step_needs_more():
    """From the second step on, AdamW's moments are there in forward, too: 12 bytes per parameter, and beside them the
    activations that the printed forward kept, 29.1 GB. So the printed figure can only be that of a first step."""
    steady = 12 * _shape().parameters / _GB + _kept(512)
    return _printed("train_step", 512), steady, abs(steady / _printed("train_step", 512) - 1) < _NEAR


@claim("cs336-a2", "the forward pass alone of 2.7b peaks at 42.7 GB at context 512", "GB")
def forward_only():
    """Without a backward to follow, under no_grad, one block's tensors or the scores of one attention come on top of
    the weights' 13.6 GB. The printed forward keeps 5.8, 12.5 and 29.1 GB at contexts 128, 256 and 512. The part that
    grows with the square of the context is 8.6 GB at 512: two copies of the attention scores of all 32 layers. So this
    forward kept what a backward needs. For such a forward the figure can be right; the report does not say which of
    the two it means."""
    shape, printed = _shape(512), _printed("forward", 512)
    inside = 3 * 4 * shape.inner + 2 * 4 * shape.hidden
    scores = 2 * 4 * shape.heads * shape.sequence  # two N × N matrices per head, as plain attention makes them
    due = (4 * shape.parameters + shape.tokens * max(inside, 8 * shape.vocabulary, scores)) / _GB
    return printed, due, True if abs(due / printed - 1) < _NEAR else None


@claim("cs336-a2", "a tensor of the residual stream takes 5.0 MB at context 128")
def residual_tensor():
    """samples × context × hidden × 4 bytes are 5 242 880 bytes: 5.0 MiB (5.24 MB), which the report writes as MB."""
    size = residual_bytes(_SAMPLES, 128, SIZES["2.7b"][0]) / 2**20
    printed = _printed("train_step", 128, quantity="residual_tensor")
    return f"{printed:.1f} MB", f"{size:.1f} MiB", abs(size / printed - 1) < _NEAR


@claim("cs336-a2", "the largest allocation of a step of 2.7b takes 100 MiB", "MiB", explained=True)
def largest_allocation():
    """A float32 matrix of the perceptron, 10 240 × 2 560 × 4 bytes, takes exactly that: a gradient or a moment. This
    holds at contexts 128 and 256. At 512 the attention scores of one layer take 128 MiB, and the printed forward keeps
    them. The report prints no context."""
    hidden, inner = SIZES["2.7b"][:2]
    printed = _printed("train_step", quantity="largest_allocation")
    return printed, 4 * hidden * inner / 2**20, 4 * hidden * inner == printed * 2**20
