"""Sharded states before anything runs: who owns what, what is held, sent and moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

RULES = ("by number", "whole parameters", "by elements")


def rank_loads(sizes: Sequence[int], ranks: int, rule: str) -> list[int]:
    """Return how many elements each rank gets of parameters with these numbers of elements.

    "by number": parameter i to rank i mod N. "whole parameters": the largest first, each to the rank that has least
    so far, as torch's ZeroRedundancyOptimizer does. "by elements": equal parts, wherever a parameter ends.
    """
    if rule == "by number":
        return [sum(sizes[rank::ranks]) for rank in range(ranks)]
    if rule == "by elements":
        return [sum(end - begin for _, begin, end in pieces) for pieces in shards(sizes, ranks)]
    held = [0] * ranks
    for size in sorted(sizes, reverse=True):
        held[held.index(min(held))] += size
    return held


def shards(sizes: Sequence[int], ranks: int) -> list[list[tuple[int, int, int]]]:
    """Return each rank its pieces (number of the parameter, begin, end) of the parameters laid end to end.

    Parts are equal, rounded up to a whole element; the last may be shorter.
    """
    share = -(-sum(sizes) // ranks)
    parts: list[list[tuple[int, int, int]]] = [[] for _ in range(ranks)]
    at = 0
    for number, size in enumerate(sizes):
        for rank in range(ranks):
            begin, end = max(at, rank * share), min(at + size, (rank + 1) * share)
            if begin < end:
                parts[rank].append((number, begin - at, end - at))
        at += size
    return parts


def excess(held: Sequence[int]) -> float:
    """Return by which share the fullest rank has more than an equal part."""
    return max(held) * len(held) / sum(held) - 1


def fullest_bucket(sizes: Sequence[int], most: float) -> int:
    """Return the elements of the largest bucket, filled in order with at most so many, or with one parameter."""
    fullest = held = 0
    for size in sizes:
        held = size if held and held + size > most else held + size
        fullest = max(fullest, held)
    return fullest


WAYS = {
    "unsharded": "unsharded",
    "zero_redundancy": "torch's",
    "zero_buckets": "torch's, in buckets",
    "sharded": "ours",
    "zero1": "ZeRO-1, reference solution",
    "your_momentum": "your momentum_step",
    "your_zero": "your update_all",
}
_SCATTER = "reduce-scatter, update, gather"
EXCHANGES = {  # what a step of each way does with gradients and parameters
    "unsharded": "all-reduce, whole update",
    "zero_buckets": "all-reduce, update, broadcasts",
    "sharded": "all-reduce, update, gather",
    **dict.fromkeys(("zero1", "your_momentum", "your_zero"), _SCATTER),
}
KERNELS = {"foreach": "many kernels", "fused": "one kernel"}
OPTIMIZERS = {"adamw": "AdamW", "momentum": "SGD, momentum"}
MODELS = {"xl": "XL", "2.7b": "2.7b"}  # that the report's peaks may be of

ITEMS = ("parameters", "gradients", "states", "activations", "temporary")
MOMENTS = ("built", "before update", "after update")


def owned_elements(sizes: Sequence[int], way: str, ranks: int) -> int:
    """Return the elements whose states the fullest rank keeps."""
    if way == "unsharded":
        return sum(sizes)
    return max(rank_loads(sizes, ranks, "by elements" if way == "sharded" else "whole parameters"))


def ledger(
    sizes: Sequence[int],
    way: str,
    ranks: int,
    moment: str,
    step: int,
    kept: int,
    *,
    optimizer: str = "adamw",
    kernel: str = "foreach",
    bucket_bytes: float = 0,
) -> dict[str, int]:
    """Return the bytes that a rank holds when it holds most, from the moment before up to this one, by item; float32.

    "built": parameters, and where they move into buckets, the first of these beside them. "before update": gradients
    grow as activations (`kept`) go, and what is more of the two counts; states are there from step 1 on. "after
    update": gradients, states, and what the kernels make on the way.
    """
    all_bytes, owned = 4 * sum(sizes), owned_elements(sizes, way, ranks)
    largest = fullest_bucket(sizes, bucket_bytes // 4) if way == "sharded" else owned
    held = dict.fromkeys(ITEMS, 0) | {"parameters": all_bytes}
    if moment == "built":
        return held | {"temporary": 4 * largest if way in ("sharded", "zero_buckets") else 0}
    if step or moment == "after update":
        held["states"] = STATE_BYTES[optimizer] * owned
    if moment == "before update":
        return held | ({"gradients": all_bytes} if all_bytes >= kept else {"activations": kept})
    temporary_elements = -(-largest // ranks) if way == "sharded" else owned
    return held | {"gradients": all_bytes, "temporary": TEMPORARY_BYTES[optimizer, kernel] * temporary_elements}


def needed_bytes(
    sizes: Sequence[int], way: str, ranks: int, kept: int, *, optimizer: str, kernel: str, bucket_bytes: float
) -> float:
    """Return the bytes that a rank holds at most, from when it is built to the end of a second update.

    A way that scatters holds a bucket's gradients twice while it does, its own and their share of the mean, and the
    rank's part of what comes of them.
    """
    scatters = EXCHANGES.get(way) == _SCATTER
    knobs = {"optimizer": optimizer, "kernel": kernel, "bucket_bytes": bucket_bytes}
    moments = [
        ledger(sizes, "sharded" if scatters else way, ranks, moment, 1, kept, **knobs)
        for moment in ("built", "before update", "after update")
    ]
    sent = 4 * fullest_bucket(sizes, bucket_bytes // 4) * (2 + 1 / ranks) if scatters else 0
    built, before, after = (sum(items.values()) for items in moments)
    return max(built, before, after + sent)


STAGES = {"ddp": "DDP", "ours": "ours", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}


class Stage(NamedTuple):
    """What one rank holds, by use, and what it sends per step, in bytes."""

    parameters: float
    gradients: float
    states: float
    sent: float

    @property
    def held(self) -> float:
        return self.parameters + self.gradients + self.states


def stage(name: str, elements: float, ranks: int) -> Stage:
    """Return a stage's bytes for a model of so many elements, trained by AdamW in float32.

    Sent is what passes a GPU's link in a ring: 2(N−1)/N of an all-reduce, (N−1)/N of a reduce-scatter or a gather.
    Ours all-reduces gradients and gathers parameters, 3 Ψ; ZeRO-1 scatters the gradients instead, 2 Ψ, as DDP sends;
    ZeRO-3 gathers parameters twice, 3 Ψ. In ZeRO-1, as in ours, a rank holds all gradients at the end of backward.
    """
    size, share = 4 * elements, 1 / ranks
    parameters = size * (share if name == "zero3" else 1)
    gradients = size * (share if name in ("zero2", "zero3") else 1)
    states = 2 * size * (1 if name == "ddp" else share)
    volume = {"ddp": 2, "ours": 3, "zero1": 2, "zero2": 2, "zero3": 3}[name]
    return Stage(parameters, gradients, states, volume * size * (ranks - 1) / ranks)


STATE_BYTES = {"sgd": 0, "momentum": 4, "adam": 8, "adamw": 8, "rmsprop": 4, "adagrad": 4}  # float32

# torch/optim/adam.py, _multi_tensor_adam keeps √v of all its tensors at once; the fused kernel nothing.
TEMPORARY_BYTES = {("adamw", "foreach"): 4, ("adamw", "fused"): 0, ("momentum", "foreach"): 0}

# Bytes read and written per element; each kernel moves its operands once. AdamW by torch's many: decay 8, lerp 12, two
# of v 8 + 12, √v 8, its correction 8, + ε 8, the update 16. In one kernel: p, g, m, v in and p, m, v out. SGD with
# momentum by many: 8 + 12 + 12.
MOVED_BYTES = {("adamw", "foreach"): 80, ("adamw", "fused"): 28, ("momentum", "foreach"): 32, ("momentum", "fused"): 20}


def sent_s(parameters: int, ranks: int, gb_per_s: float, in_turn: bool) -> float:
    """Return the least seconds in which parameters reach all ranks, at a link's rate in one direction.

    Gathered, a rank takes in (N−1)/N of them while it sends its own. `in_turn`, one rank after another sends its part
    to all, and the links of the others wait to send: N parts in a row.
    """
    if ranks == 1:
        return 0.0
    return 4 * parameters * (1 if in_turn else (ranks - 1) / ranks) / (1e9 * gb_per_s)
