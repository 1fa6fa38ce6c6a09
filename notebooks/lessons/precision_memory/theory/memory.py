"""The levers on what a training step of the course's transformer holds at its fullest moment, in bytes."""

from __future__ import annotations

import math
from typing import Any

from labkit.theory.step_memory import STATE_BYTES, Shape, ledger, step_moments


def shape_of(plan: Any, **knobs: Any) -> Shape:
    """Return the shape of a plan's model, with knobs of a point."""
    names = ("vocabulary", "hidden", "inner", "layers", "heads", "samples", "sequence")
    sizes = {name: knobs.get(name, getattr(plan, name)) for name in names}
    return Shape(**sizes, precision=knobs.get("precision", "float32"), gpu=plan.device == "cuda")


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
    loss, *_, update = (sum(items.values()) for items in step_moments(shape, "steady step", "fused"))
    kept, entry = _block_bytes(shape)
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


def _block_bytes(shape: Shape) -> tuple[int, int]:
    """Return the bytes that a block keeps for backward, and those of its input among them."""
    return shape.kept - shape._replace(layers=shape.layers - 1).kept, 4 * shape.tokens * shape.hidden


def lever_peak(shape: Shape, lever: str) -> float:
    """Return the bytes at the fullest moment of a steady step under one of LEVERS; NaN where there is no formula."""
    options = LEVERS[lever]
    if not {*options} <= {"checkpoint", "by"}:
        return math.nan
    return checkpointed_step(shape, options["checkpoint"]) if options else sum(ledger(shape, "steady step").values())


def least_peak(shape: Shape, lever: str) -> float:
    """Return the bytes that a steady step under one of LEVERS holds at least: `lever_peak`, or somewhat less.

    Left out are what a selective checkpoint keeps beside its input, and the one gradient of an update in backward.
    """
    options = LEVERS[lever]
    if "weights" in options:  # everything has float32's elements, of two bytes each
        return _least_peak(shape._replace(precision="float32"), options) / 2
    return _least_peak(shape, options)


def _least_peak(shape: Shape, options: dict[str, Any]) -> float:
    update = options.get("update", "fused")
    loss, *_, at_update = (sum(items.values()) for items in step_moments(shape, "steady step", update))
    every = options.get("checkpoint")
    if every and not options.get("in_backward"):
        return checkpointed_step(shape, every)
    if every:
        kept, entry = _block_bytes(shape)
        loss += _blocks_held(kept, entry, shape.layers, every)[0][1] - shape.layers * kept
    if options.get("offload"):
        loss -= shape.kept
    if not options.get("set_to_none", True):
        loss += 4 * shape.parameters  # gradients stay
    return loss if options.get("in_backward") else max(loss, at_update)
