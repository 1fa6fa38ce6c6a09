"""What a report answers to the assignment's questions on XXL, recomputed from exact sizes and times."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from labkit.tables.claims import Stated
from labkit.tables.published import published
from lessons.accounting.theory import (
    COURSE_MESH,
    XXL,
    devices,
    least_tokens,
    number_in,
    of,
    parts_bytes,
    smallest_fsdp,
    times,
)

_STATES = sum(parts_bytes(XXL, 0).values())  # bytes of parameters, gradients and moments
_TOKEN = parts_bytes(XXL, 1)["activations"]  # bytes
_LEAST = least_tokens(COURSE_MESH, XXL, at_once=False)  # tokens in all
_MEMORY, _BATCH = "answer on memory", "answer on the batch"


def _printed(quantity: str) -> Any:
    return lambda: published("communication_accounting").set_index("quantity")["value"][quantity]


def agrees(printed: float, ours: float) -> bool:
    """Say whether `ours`, rounded to as many digits as were printed, is what was printed."""
    digits = len(Decimal(str(printed)).normalize().as_tuple().digits)
    return float(f"{ours:.{digits}g}") == float(f"{printed:.{digits}g}")


def _bound_above() -> str:
    """Return on which side of the bound computing covers communication."""
    above, below = (
        part.math_s >= part.fsdp_s + part.tensor_s
        for part in (times(COURSE_MESH, XXL, share * _LEAST) for share in (1.01, 0.99))
    )
    return "both or neither" if above == below else "above" if above else "below"


_ROWS: tuple[dict[str, Any], ...] = (
    {
        "name": "devices_needed",
        "where": _MEMORY,
        "says": "These states take 41 H100s of 80 GB",
        "printed": _printed("H100 80GB equivalents"),
        "recomputed": lambda: devices(_STATES, 80),
        "holds": agrees,
        "unit": "devices",
        "reason": "It divides 3 276 GiB by 80 GB: two units. By the bytes of an H100's driver 42 would be enough.",
    },
    {
        "name": "shards",
        "where": "answer on sharding",
        "says": "On 34 devices the states need just over 95 GB each, on more they fit",
        "printed": _printed("smallest N_FSDP under 95 GB"),
        "recomputed": lambda: (smallest_fsdp(XXL, 0, of(95, "GB")) or 0) - 1,
        "recomputes": "the most that are too few",
        "holds": agrees,
        "unit": "devices",
        "reason": "The same mistake: with a label of 95 GiB, 34 is right.",
    },
    {
        "name": "activations_per_device",
        "where": "answer on sharding",
        "says": "Sharded, a device holds 0.002 GiB of activations per token of the batch",
        "printed": _printed("activations per token that a sharded device holds"),
        "recomputed": lambda: float(number_in("GiB", _TOKEN / 2)),
        "recomputes": "the half that is not sharded",
        "holds": agrees,
        "unit": "GiB",
        "reason": "Half of 0.016 GiB is not sharded. 0.002 is half of the blocks, d_model alone: d_ff is missing.",
    },
    {
        "name": "compute_bound_batch",
        "where": _BATCH,
        "says": "The compute-bound batch is 641 tokens per device",
        "printed": _printed("compute-bound batch"),
        "recomputed": lambda: _LEAST / COURSE_MESH.devices,
        "holds": agrees,
        "unit": "tokens",
        "reason": "Its time of computing counts one of two matrices, and all tokens on one device: the table above.",
    },
    {
        "name": "direction",
        "where": _BATCH,
        "says": "The model is compute-bound at batches below this one",
        "printed": lambda: "below",
        "recomputed": _bound_above,
        "recomputes": "computing beside communication at 1 % more and less",
        "holds": lambda printed, ours: printed == ours,
        "reason": "Computing grows with the batch, gathering weights does not. So the bound is a least batch.",
    },
    {
        "name": "longer_context",
        "where": "list of ways to lower the batch",
        "says": "A longer context lowers the batch, in tokens, that keeps XXL compute-bound",
        "printed": lambda: None,
        "recomputed": lambda: _LEAST,
        "recomputes": "at any context",
        "holds": lambda *_: False,
        "unit": "tokens",
        "digits": 5,
        "reason": "No term of the bound knows the context: fewer sequences, as many tokens. XXL has no attention.",
    },
    {
        "name": "parameters",
        "where": _MEMORY,
        "says": "XXL has 220 billion parameters",
        "printed": lambda: _printed("parameters")() / 1e9,
        "recomputed": lambda: XXL.parameters / 1e9,
        "holds": agrees,
        "unit": "billion parameters",
        "digits": 4,
        "reason": "126 blocks of two matrices of 16 384 × 53 248 numbers.",
    },
    {
        "name": "states",
        "where": _MEMORY,
        "says": "Weights, gradients and optimizer states in float32 take 3 276 GiB",
        "printed": _printed("weights+gradients+optimizer"),
        "recomputed": lambda: float(number_in("GiB", _STATES)),
        "holds": agrees,
        "unit": "GiB",
        "digits": 4,
        "reason": "A parameter takes 4 bytes for its weight, 4 for its gradient and 8 for AdamW's two moments.",
    },
    {
        "name": "activations",
        "where": _MEMORY,
        "says": "A token leaves 0.016 GiB of activations for the backward",
        "printed": _printed("activations per sample"),
        "recomputed": lambda: float(number_in("GiB", _TOKEN)),
        "holds": agrees,
        "unit": "GiB",
        "reason": "The inputs of both matrices in each of 126 blocks, two bytes a number.",
        "chosen": False,
    },
)
CLAIMS = tuple(Stated(report="cs336-a2", **row) for row in _ROWS)
