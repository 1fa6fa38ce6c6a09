"""What a rank holds around an update, item by item, whatever shares the states."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.labs.optimizer_sharding.theory.balance import fullest_bucket, loads
from labkit.labs.optimizer_sharding.theory.updates import STATE_BYTES, TEMPORARY_BYTES

ITEMS = ("parameters", "gradients", "states", "activations", "temporary")
MOMENTS = ("built", "before update", "after update")


def activations(tokens: int, hidden: int, inner: int, layers: int, heads: int, vocabulary: int) -> int:
    """Give the bytes that the transformer's forward keeps for its backward on a GPU, float32.

    A layer keeps 8 × hidden a token (what goes into both norms and comes out of them, q, k, v, the attention's
    output) and 4 × inner (gate, its SiLU, up, their product); a last norm 2 × hidden, the loss the vocabulary's
    log-probabilities. Statistics: a number a head from the attention, one a token from each norm.
    """
    wide = layers * (8 * hidden + 4 * inner) + 2 * hidden + vocabulary
    return 4 * tokens * (wide + layers * heads + 2 * layers + 1)


def owned(sizes: Sequence[int], way: str, ranks: int) -> int:
    """Give the elements whose states the fullest rank keeps."""
    if way == "unsharded":
        return sum(sizes)
    return max(loads(sizes, ranks, "by elements" if way == "sharded" else "whole parameters"))


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
    """Give the bytes that a rank holds when it holds most, from the moment before up to this one, by item; float32.

    "built": parameters, and where they move into buckets, the first of these beside them. "before update": gradients
    grow as activations (`kept`) go, and what is more of the two counts; states are there from step 1 on. "after
    update": gradients, states, and what the kernels make on the way.
    """
    whole, own = 4 * sum(sizes), owned(sizes, way, ranks)
    largest = fullest_bucket(sizes, bucket_bytes // 4) if way == "sharded" else own
    held = dict.fromkeys(ITEMS, 0) | {"parameters": whole}
    if moment == "built":
        return held | {"temporary": 4 * largest if way in ("sharded", "zero_buckets") else 0}
    if step or moment == "after update":
        held["states"] = STATE_BYTES[optimizer] * own
    if moment == "before update":
        return held | ({"gradients": whole} if whole >= kept else {"activations": kept})
    made = -(-largest // ranks) if way == "sharded" else own
    return held | {"gradients": whole, "temporary": TEMPORARY_BYTES[optimizer, kernel] * made}
