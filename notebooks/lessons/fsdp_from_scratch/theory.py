"""Fully sharded training before anything runs: what a rank holds and sends, and when a unit's gathering can hide."""

from __future__ import annotations

import math
from typing import Any

from labkit.theory.shapes import Model, elements
from labkit.theory.step_memory import STATE_BYTES, Shape
from labkit.theory.traffic import Sent

UNITS = {"layer": "each matrix", "block": "each block", "model": "the whole model"}
STRATEGIES = {
    "alone": "ours, each rank by itself",
    "ddp": "torch's DDP",
    "torch": "torch's fully_shard",
    "ours": "ours",
    "yours": "yours",
}
STAGES = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
ITEMS = ("parameters", "gradients", "optimizer", "gathered", "activations", "temporary")


def setting_name(row: Any) -> str:
    """Return a setting in words: "ours, each block, 1 ahead"."""
    unit = f", {UNITS[row.unit]}" if row.unit and row.strategy != "alone" else ""
    ahead = f", {row.prefetch} ahead" if row.strategy == "ours" and row.unit != "model" else ""
    return f"{STRATEGIES[row.strategy]}{unit}{ahead}"


def element_bytes(precision: str) -> int:
    """Return the bytes of a gathered weight or of a gradient that is sent."""
    return 2 if precision == "bfloat16" else 4


def stage_bytes(stage: str, parameters: float, ranks: int) -> dict[str, float]:
    """Return what a rank holds between two steps (parameters, gradients, optimizer), and what it `sent`, in bytes.

    float32, AdamW. Each stage shards one thing more (Rajbhandari and others, "ZeRO", 2020). Sent is what passes a link
    in a ring, in units of (N−1)/N of the parameters: a reduce-scatter or an all-gather is one, an all-reduce two.
    """
    shared = ("ddp", "zero1", "zero2", "zero3").index(stage)
    sizes = {"optimizer": 2 * 4 * parameters, "gradients": 4 * parameters, "parameters": 4 * parameters}
    held = {item: size / (ranks if shared > place else 1) for place, (item, size) in enumerate(sizes.items())}
    return held | {"sent": (3 if stage == "zero3" else 2) * 4 * parameters * (ranks - 1) / ranks}


def unit_sizes(model: Model, unit: str) -> tuple[int, list[int]]:
    """Return the elements of the weights that the outermost unit holds, and those of the other units, in order."""
    if unit == "model":
        return model.parameters, []
    matrices = [math.prod(shape) for shape in model.block if len(shape) > 1]
    block = elements(model.block)
    each = [block] if unit == "block" else matrices
    return elements(model.root) + model.blocks * (block - sum(each)), each * model.blocks


def padded(size: int, ranks: int) -> int:
    """Return the elements of a unit's weights and its padding."""
    return size + -size % ranks


def whole_bytes(sizes: list[int], ranks: int, number: int, prefetch: int) -> int:
    """Return the bytes of weights that a rank holds while unit `number` computes in forward, `prefetch` more gathered.

    `sizes` are the units' elements. Shards are float32, whole units bfloat16.
    """
    each = [padded(size, ranks) for size in sizes]
    return 4 * sum(each) // ranks + 2 * sum(each[number : number + prefetch + 1])


def traffic(model: Model, unit: str, ranks: int, precision: str) -> list[Sent]:
    """Return the calls of a step of ours, and the bytes of their whole tensors.

    Each unit is gathered for forward and for backward, the outermost once; each gradient is reduced and scattered once.
    """
    outermost, others = unit_sizes(model, unit)
    root = padded(outermost, ranks) * element_bytes(precision)
    rest = sum(padded(size, ranks) for size in others) * element_bytes(precision)
    return [
        Sent("all-gather", 1 + 2 * len(others), root + 2 * rest),
        Sent("reduce-scatter", 1 + len(others), root + rest),
    ]


def ledger(shape: Shape, model: Model, strategy: str, unit: str, ranks: int, prefetch: int) -> dict[str, float]:
    """Return the bytes of ITEMS on a rank at the fullest moment of a steady step.

    That is the loss (all activations), or the end of backward (all gradients but the outermost unit's). `gathered`
    counts the units that are whole then, those that come next, and a unit's gradients: as made, and joined.
    """
    whole, all_bytes = strategy == "ddp", 4 * model.parameters
    share = 1 if strategy in ("ddp", "alone") else ranks
    size = 2 if shape.precision == "bfloat16" and not whole else 4
    outermost, others = (0, []) if whole else unit_sizes(model, unit)
    gathered = size * (outermost + max(others, default=0) * (3 + prefetch)) + (shape.copies if whole else 0)
    held = {"parameters": all_bytes / share, "optimizer": STATE_BYTES * model.parameters / share}
    if whole:  # its buckets are there from the first step on, and gradients are views of them
        held["gradients"] = all_bytes
    logits = 8 * shape.tokens * shape.vocabulary
    at_loss = held | {"gathered": gathered, "activations": shape.kept, "temporary": logits}
    at_end = held | {"gradients": (all_bytes - 4 * outermost) / share, "gathered": 3 * size * outermost}
    fullest = max(at_loss, at_end, key=lambda items: sum(items.values()))
    return dict.fromkeys(ITEMS, 0) | fullest


def held_over_time(units: int, unit: float, prefetch: int, release: bool = True) -> list[float]:
    """Return the bytes of gathered weights while each unit computes, forward and then backward.

    `unit` are a unit's bytes. Without `release` a unit stays whole from its forward to its backward.
    """
    forward = [
        unit * (min(units, number + 1 + prefetch) if not release else min(1 + prefetch, units - number))
        for number in range(units)
    ]
    backward = [unit * ((number + 1) if not release else min(1 + prefetch, number + 1)) for number in range(units)]
    return forward + backward[::-1]


def tokens_to_hide(flop_per_s: float, bytes_per_s: float, ranks: int, element_bytes: int = 2) -> float:
    """Return the tokens per rank and step from which gathering a unit takes no longer than computing it.

    A weight costs 2 FLOP a token in forward and (N−1)/N of its bytes on the link; in backward both are twice as much.
    The size of the unit cancels.
    """
    return element_bytes * (ranks - 1) / ranks / bytes_per_s * flop_per_s / 2


def exposed_s(
    parameters: float, units: int, tokens: float, ranks: int, *, flop_per_s: float, bytes_per_s: float, call_s: float
) -> tuple[float, float]:
    """Return the seconds of computing in a step, and those that communication adds, where one unit is gathered ahead.

    bfloat16. The first unit's gather and the last one's reduce-scatter have nothing to hide behind; of the others, what
    is longer than the computing of one unit adds to the step.
    """
    computing = 2 * parameters / units * tokens / flop_per_s
    sending = call_s + 2 * parameters / units * (ranks - 1) / ranks / bytes_per_s
    forward = sending + (units - 1) * max(0.0, sending - computing)
    backward = sending + (units - 1) * max(0.0, 2 * sending - 2 * computing)
    return 3 * units * computing, forward + backward
