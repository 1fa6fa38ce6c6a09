"""What a training step of the course's transformer holds on one GPU at its fullest moment, item by item, in bytes."""

from __future__ import annotations

from typing import NamedTuple

from labkit.theory.transformer import activations, transformer

ITEMS = ("parameters", "copies", "gradients", "optimizer", "activations", "temporary")
PHASES = ("no_grad", "forward", "first step", "steady step")
STATE_BYTES = 8  # AdamW's two moments, float32
UPDATE_BYTES = {"foreach": 4, "fused": 0, "for-loop": 0}  # what AdamW makes besides, a parameter (torch/optim/adam.py)


class Shape(NamedTuple):
    """What decides a step's memory: the model's sizes, the batch and the precision ("float32" or "bfloat16")."""

    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    samples: int
    sequence: int
    precision: str = "float32"
    gpu: bool = True  # a CPU's kernels keep a little more

    @property
    def tokens(self) -> int:
        return self.samples * self.sequence

    @property
    def parameters(self) -> int:
        return transformer(self.hidden, self.inner, self.layers, self.vocabulary).parameters

    @property
    def multiplied(self) -> int:
        """Elements of the matrices that autocast copies: all but the embedding and the norms."""
        block = 4 * self.hidden**2 + 3 * self.hidden * self.inner
        return self.layers * block + self.hidden * self.vocabulary

    @property
    def kept(self) -> int:
        """Bytes that forward keeps for backward, copies of weights left out."""
        sizes = (self.hidden, self.inner, self.layers, self.heads, self.vocabulary)
        return activations(self.tokens, *sizes, self.precision, gpu=self.gpu)

    @property
    def copies(self) -> int:
        """Bytes of the rounded copies of weights that autocast makes in forward."""
        return 0 if self.precision == "float32" else 2 * self.multiplied

    @property
    def element_bytes(self) -> int:
        """Bytes of an element that goes into a matrix product."""
        return 4 if self.precision == "float32" else 2


def ledger(shape: Shape, phase: str, update: str = "fused") -> dict[str, int]:
    """Return the bytes by ITEMS at the fullest moment of a phase (of PHASES).

    "no_grad" and "forward" hold no gradients and no states. A step's fullest moment is one of three: the loss (all
    activations and, as backward begins, two float32 gradients of the logits; of the steady step the states, too), the
    end of backward (all gradients) or the update (gradients, states and what AdamW's kernels make).
    """
    return max(step_moments(shape, phase, update), key=lambda items: sum(items.values()))


def step_moments(shape: Shape, phase: str, update: str) -> list[dict[str, int]]:
    """Return what each moment holds that can be the fullest."""
    held = dict.fromkeys(ITEMS, 0) | {"parameters": 4 * shape.parameters}
    if phase == "no_grad":
        return [held | {"copies": shape.copies, "temporary": _inference(shape)}]
    logits = _logits(shape) - (2 * shape.tokens * shape.vocabulary if shape.copies and shape.gpu else 0)  # those kept
    full = {"copies": shape.copies, "activations": shape.kept, "temporary": logits}
    if phase == "forward":
        return [held | full]
    states = STATE_BYTES * shape.parameters
    before = states if phase == "steady step" else 0
    gradients = 4 * shape.parameters
    made = UPDATE_BYTES[update] * shape.parameters
    at_the_loss = max(8 * shape.tokens * shape.vocabulary, _first_backward(shape))
    in_backward = shape.tokens * 4 * shape.hidden
    return [
        held | full | {"optimizer": before, "temporary": at_the_loss},
        held | {"gradients": gradients, "optimizer": before, "temporary": in_backward},
        held | {"gradients": gradients, "optimizer": states, "temporary": made},
    ]


def _inference(shape: Shape) -> int:
    """Return what a forward without gradients holds at most: inside a perceptron, or at the loss."""
    inside = 2 * 4 * shape.hidden + 3 * shape.element_bytes * shape.inner
    at_loss = _logits(shape) + shape.tokens * 4 * (shape.vocabulary + shape.hidden)
    return max(shape.tokens * inside, at_loss)


def _logits(shape: Shape) -> int:
    """Return the bytes of the logits: as they are multiplied and, where that is not float32, once more in float32."""
    return shape.tokens * shape.vocabulary * (4 if shape.precision == "float32" else 6)


def _first_backward(shape: Shape) -> int:
    """Return what backward has made when it is in the last block's perceptron, less what it has let go.

    The head's gradient is there, and of the block the gradients of two products of `inner`; the log-probabilities are
    gone.
    """
    head = 4 * shape.hidden * shape.vocabulary
    rows = 2 * shape.element_bytes * shape.inner + 2 * 4 * shape.hidden - 4 * shape.vocabulary
    return head + max(0, shape.tokens * rows)
