"""What a report answers to the assignment's questions on XXL, recomputed."""

from __future__ import annotations

import pandas as pd

from labkit.tables.claims import claim
from labkit.tables.published import published
from lessons.accounting.tables.answers import BATCH, DEVICES, ON_A_DEVICE, SHARDS
from lessons.accounting.tables.answers import answers as answers_of
from lessons.accounting.theory import COURSE_MESH, XXL, least_tokens, times


def _answer(quantity: str) -> pd.Series:
    return answers_of(published("communication_accounting")).set_index("quantity").loc[quantity]


@claim("cs336-a2", "XXL has 220 billion parameters", "billion parameters", digits=4)
def parameters():
    """XXL has 126 blocks of two matrices of 16 384 × 53 248 numbers."""
    row = _answer("parameters")
    return row["printed"] / 1e9, row["ours"] / 1e9, row["agrees"]


@claim("cs336-a2", "weights, gradients and optimizer states in float32 take 3 276 GiB", "GiB", digits=4)
def states():
    """A parameter takes 4 bytes for its weight, 4 for its gradient and 8 for AdamW's two moments."""
    row = _answer("weights+gradients+optimizer")
    return row["printed"], row["ours"], row["agrees"]


@claim("cs336-a2", "a token leaves 0.016 GiB of activations for the backward", "GiB")
def activations():
    """A token leaves the inputs of both matrices in each of 126 blocks, as bfloat16 numbers of two bytes."""
    row = _answer("activations per sample")
    return row["printed"], row["ours"], row["agrees"]


@claim("cs336-a2", "these states take 41 H100s of 80 GB", "devices")
def devices_needed():
    """The report divides 3 276 GiB by 80 GB. In one unit it is 3 518 GB by 80 GB. With the label read as 80 GiB our
    function gives the printed number; with the size that the driver of an H100 reports it gives 42."""
    row = _answer(DEVICES)
    return row["printed"], row["ours"], row["agrees"]


@claim("cs336-a2", "on 34 devices the states need just over 95 GB each, on more they fit", "devices")
def shards():
    """The report divides 3 276 GiB by 95 GB, the same mistake: with a label of 95 GiB our function gives 34, too. With
    one unit, 37 devices are still too few and 38 are enough."""
    row = _answer(SHARDS)
    return row["printed"], row["ours"], row["agrees"]


@claim("cs336-a2", "sharded, a device holds 0.002 GiB of activations per token of the batch", "GiB")
def activations_per_device():
    """Half of a token's activations is not sharded, so each device holds half of the 0.016 GiB that the same report
    counts per token. 0.002 GiB is what half of the 126 blocks keep of d_model, 16 384 numbers of two bytes each: d_ff
    is missing."""
    row = _answer(ON_A_DEVICE)
    return row["printed"], row["ours"], row["agrees"]


@claim("cs336-a2", "the compute-bound batch is 641 tokens per device", "tokens")
def compute_bound_batch():
    """The report's times of communication are ours. Its time of computing is 2·D·F·B / C: one of the block's two
    matrices, and all of B on one device instead of X · Y. With its rounded 3.8 µs per token this gives 641.57, cut to
    641. The table of the derivation shows each step."""
    row = _answer(BATCH)
    return row["printed"], row["ours"], row["agrees"]


@claim("cs336-a2", "the model is compute-bound at batches below this one")
def direction():
    """Computing grows with the batch and the gathering of weights does not. So the bound is a least batch: above it
    computing takes longer than communication, below it communication does."""
    least = least_tokens(COURSE_MESH, XXL, at_once=False)
    above, below = (times(COURSE_MESH, XXL, share * least) for share in (1.01, 0.99))
    bound_above, bound_below = (one.math_s >= one.fsdp_s + one.tensor_s for one in (above, below))
    return "below", "above" if bound_above else "below", bound_below and not bound_above


@claim("cs336-a2", "a longer context lowers the batch, in tokens, that keeps XXL compute-bound")
def longer_context():
    """The bound counts tokens, and no term of it knows the context. A longer context needs fewer sequences, and just as
    many tokens. XXL has no attention; with causal attention a context of T tokens adds T / (2F) to computing per token,
    8 % at 8 192, and lowers the bound by about as much."""
    tokens = f"{round(least_tokens(COURSE_MESH, XXL, at_once=False)):,}".replace(",", " ")
    return None, f"{tokens} tokens at any context", False
