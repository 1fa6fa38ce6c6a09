"""What a report answers to the assignment's questions on XXL, recomputed from exact sizes and times."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from labkit.tables.claims import Figures
from labkit.tables.published import published
from lessons.accounting.theory import (
    COURSE_MESH,
    XXL,
    bytes_of,
    devices,
    least_tokens,
    number_in,
    parts_bytes,
    smallest_fsdp,
)

_STATES = sum(parts_bytes(XXL, 0).values())  # bytes of parameters, gradients and moments
_TOKEN = parts_bytes(XXL, 1)["activations"]  # bytes
_LEAST = least_tokens(COURSE_MESH, XXL)  # tokens in all


def _printed(quantity: str) -> Any:
    return lambda: published("communication_accounting").set_index("quantity")["value"][quantity]


def agrees(printed: float, ours: float) -> bool:
    """Say whether `ours`, rounded to as many digits as were printed, is what was printed."""
    digits = len(Decimal(str(printed)).normalize().as_tuple().digits)
    return float(f"{ours:.{digits}g}") == float(f"{printed:.{digits}g}")


def _too_few(unit: str) -> int:
    """Return the most devices that are too few for 95 GB, or GiB, each."""
    return (smallest_fsdp(XXL, 0, bytes_of(95, unit)) or 0) - 1


FIGURES = {
    "devices_needed": Figures(
        _printed("H100 80GB equivalents"),
        lambda: devices(_STATES, 80),
        lambda printed, recomputed: (
            agrees(printed, recomputed) or (None if printed == devices(_STATES, 80, "GiB") else False)
        ),
    ),
    "shards": Figures(
        _printed("smallest N_FSDP under 95 GB"),
        lambda: _too_few("GB"),
        lambda printed, recomputed: agrees(printed, recomputed) or (None if printed == _too_few("GiB") else False),
    ),
    "activations_per_device": Figures(
        _printed("activations per token that a sharded device holds"),
        lambda: float(number_in("GiB", _TOKEN / 2)),
        agrees,
    ),
    "compute_bound_batch": Figures(_printed("compute-bound batch"), lambda: _LEAST / COURSE_MESH.devices, agrees),
    "parameters": Figures(lambda: _printed("parameters")() / 1e9, lambda: XXL.parameters / 1e9, agrees),
    "states": Figures(_printed("weights+gradients+optimizer"), lambda: float(number_in("GiB", _STATES)), agrees),
    "activations": Figures(_printed("activations per sample"), lambda: float(number_in("GiB", _TOKEN)), agrees),
}
