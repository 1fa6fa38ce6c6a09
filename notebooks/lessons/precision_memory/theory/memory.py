"""What a training step of the course's transformer holds at its fullest moment, in bytes, and the levers on it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

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


def residual_bytes(samples: int, sequence: int, hidden: int) -> int:
    """Return the bytes of the residual stream in float32: samples × sequence × hidden × 4."""
    return 4 * samples * sequence * hidden


def shape_of(plan: Any, **knobs: Any) -> Shape:
    """Return the shape of a plan's model, with knobs of a point."""
    names = ("vocabulary", "hidden", "inner", "layers", "heads", "samples", "sequence")
    sizes = {name: knobs.get(name, getattr(plan, name)) for name in names}
    return Shape(**sizes, precision=knobs.get("precision", "float32"), gpu=plan.device == "cuda")


def ledger(shape: Shape, phase: str, update: str = "fused") -> dict[str, int]:
    """Return the bytes by ITEMS at the fullest moment of a phase (of PHASES).

    "no_grad" and "forward" hold no gradients and no states. A step's fullest moment is one of three: the loss (all
    activations and, as backward begins, two float32 gradients of the logits; of the steady step the states, too), the
    end of backward (all gradients) or the update (gradients, states and what AdamW's kernels make).
    """
    return max(_moments(shape, phase, update), key=lambda items: sum(items.values()))


def _moments(shape: Shape, phase: str, update: str) -> list[dict[str, int]]:
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


YOURS, REFERENCE = "yours, every 2nd block", "by hand, every 2nd block"
# What a lever changes of the plain step: AdamW in one kernel, autocast to bfloat16, nothing computed twice.
LEVERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "foreach AdamW": {"update": "foreach"},
    "gradients set to zero": {"set_to_none": False},
    "checkpoint every block": {"checkpoint": 1},
    "checkpoint every 2nd block": {"checkpoint": 2},
    "checkpoint every 4th block": {"checkpoint": 4},
    YOURS: {"checkpoint": 2, "by": "yours"},
    REFERENCE: {"checkpoint": 2, "by": "reference"},
    "checkpoint, selective": {"checkpoint": 1, "selective": True},
    "activations to the host": {"offload": True},
    "optimizer in backward": {"in_backward": True},
    "bfloat16 weights": {"weights": "bfloat16"},
    "checkpoint + optimizer in backward": {"checkpoint": 1, "in_backward": True},
    "all: bfloat16, checkpoint, in backward": {"weights": "bfloat16", "checkpoint": 1, "in_backward": True},
}


def blocks_peak(kept: float, entry: float, layers: int, every: int) -> float:
    """Return the most bytes that blocks hold while backward walks from the last one to the first.

    Each keeps `kept` bytes, its input's `entry` among them; numbers 0, every, 2·every … keep their input only, and are
    computed again just before their backward.
    """
    return max(held for _, held in _blocks_held(kept, entry, layers, every))


def _blocks_held(kept: float, entry: float, layers: int, every: int) -> list[tuple[int, float]]:
    """Return (block, bytes that all blocks hold) when forward ends, and when backward comes to each block."""
    held = sum(kept if number % every else entry for number in range(layers))
    course = [(layers - 1, held)]
    for number in reversed(range(layers)):
        is_again = number % every == 0
        course.append((number, held + (kept - entry if is_again else 0)))
        held -= entry if is_again else kept
    return course


def checkpointed_step(shape: Shape, every: int) -> float:
    """Return the bytes at the fullest moment of a steady step in which one block of `every` is checkpointed.

    That is the loss, the beginning of some block's backward, or the update.
    """
    loss, *_, update = (sum(items.values()) for items in _moments(shape, "steady step", "fused"))
    kept, entry = shape.kept - shape._replace(layers=shape.layers - 1).kept, 4 * shape.tokens * shape.hidden
    (_, after_forward), *backward = _blocks_held(kept, entry, shape.layers, every)
    weights = 4 * shape.hidden**2 + 3 * shape.hidden * shape.inner  # of a block; its norms are nothing beside them
    copy = 2 * weights if shape.copies else 0
    head, rest = 4 * shape.hidden * shape.vocabulary, (4 + STATE_BYTES) * shape.parameters
    moments = [loss - shape.layers * kept + after_forward, update]
    for number, held in backward:
        gradients = head + 4 * weights * (shape.layers - 1 - number)
        copies = copy * sum(before == number or before % every > 0 for before in range(number + 1))
        moments.append(rest + gradients + held + copies + entry)
    return max(moments)


def lever_peak(shape: Shape, lever: str) -> float:
    """Return the bytes at the fullest moment of a steady step under one of LEVERS; NaN where there is no formula."""
    options = LEVERS[lever]
    if not {*options} <= {"checkpoint", "by"}:
        return math.nan
    return checkpointed_step(shape, options["checkpoint"]) if options else sum(ledger(shape, "steady step").values())
