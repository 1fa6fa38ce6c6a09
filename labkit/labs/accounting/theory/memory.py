"""Bytes a device, kind by kind: on one device, on a mesh that shards, and under DDP and ZeRO."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from labkit.labs.accounting.theory.models import Model
from labkit.theory.memory import PRECISIONS

KINDS = ("parameters", "gradients", "optimizer", "activations")
WHOLE = {"parameters": 4, "gradients": 4, "optimizer": 8}  # bytes a parameter: all in float32, AdamW's two moments
HALF = Fraction(1, 2)  # of the activations are sharded, "in practice every second layer"
STRATEGIES = {  # kinds that are cut into as many pieces as there are GPUs (Rajbhandari and others, "ZeRO", 2020)
    "DDP": (),
    "ZeRO-1": ("optimizer",),
    "ZeRO-2": ("gradients", "optimizer"),
    "ZeRO-3": ("parameters", "gradients", "optimizer"),
}
GATHERED_BLOCKS = 4  # of ZeRO-3: the block at work and the next, each beside the buffer that brought it


def parts(model: Model, tokens: int, element_bytes: int = 2) -> dict[str, int]:
    """Give the bytes of the whole model by KINDS: float32 but for activations, `element_bytes` a number."""
    states = {kind: each * model.parameters for kind, each in WHOLE.items()}
    return states | {"activations": element_bytes * tokens * model.kept()}


def held(model: Model, tokens: int, fsdp: int = 1, tensor: int = 1, element_bytes: int = 2) -> dict[str, Fraction]:
    """Give the bytes a device by KINDS, exactly: `tokens` are those of one of the `fsdp` shards of the batch.

    As the course asks: FSDP shards parameters, gradients, states and half of the activations; of what is left, tensor
    parallelism gives each of `tensor` devices an equal part. What is gathered to compute with is not counted.
    """
    cut = {kind: Fraction(size, fsdp * tensor) for kind, size in parts(model, tokens, element_bytes).items()}
    return cut | {"activations": cut["activations"] * (HALF + (1 - HALF) * fsdp)}


def smallest_fsdp(model: Model, tokens: int, room_bytes: int, tensor: int = 1, element_bytes: int = 2) -> int | None:
    """Give the fewest FSDP shards with which a device holds no more than `room_bytes`; None where none are enough."""
    whole = parts(model, tokens, element_bytes)
    stays = (1 - HALF) * whole["activations"]
    left = tensor * room_bytes - stays
    return ceil((sum(whole.values()) - stays) / left) if left > 0 else None


def zero_held(
    model: Model, strategy: str, gpus: int, tokens: int, precision: str = "bfloat16", recompute: bool = True
) -> dict[str, Fraction]:
    """Give the bytes a GPU by KINDS and "gathered" under one of STRATEGIES, with `tokens` on each GPU.

    All that is counted is taken to be there at once. Not counted are DDP's buckets, the activations' gradients and
    logits in float32. "bfloat16" has weights, gradients and activations in two bytes, and twelve of float32 states;
    both precisions have 16 bytes a parameter.
    """
    element_bytes, state_bytes = PRECISIONS[precision]
    each = {"parameters": element_bytes, "gradients": element_bytes, "optimizer": state_bytes}
    found = {
        kind: Fraction(size * model.parameters, gpus if kind in STRATEGIES[strategy] else 1)
        for kind, size in each.items()
    }
    gathers = strategy == "ZeRO-3" and gpus > 1
    whole = GATHERED_BLOCKS * model.block_parameters + model.root_parameters
    kept = Fraction(element_bytes * tokens * model.kept(recompute))
    return found | {"activations": kept, "gathered": Fraction(element_bytes * whole * gathers)}


def fewest_gpus(
    model: Model,
    strategy: str,
    room_bytes: int,
    tokens: int = 1024,
    precision: str = "bfloat16",
    recompute: bool = True,
) -> int | None:
    """Give the fewest GPUs of `room_bytes` on which a strategy fits; None where no number of them is enough."""
    alone = zero_held(model, strategy, 1, tokens, precision, recompute)
    if sum(alone.values()) <= room_bytes:
        return 1
    cut = sum(alone[kind] for kind in STRATEGIES[strategy])
    stays = sum(zero_held(model, strategy, 2, tokens, precision, recompute).values()) - cut / 2
    left = room_bytes - stays
    return max(2, ceil(cut / left)) if cut and left > 0 else None
