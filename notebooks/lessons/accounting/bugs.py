"""Find the bug: accountings of XXL that look right. `SYMPTOMS` says what each gets wrong, ACCOUNTS is their code."""

from __future__ import annotations

from lessons.accounting.theory import NODE, XXL, devices, least_tokens, parts_bytes

SYMPTOMS = {
    "mixed_units": "a total in GiB is divided by a label in GB, so too few devices are asked for",
    "gradients_twice": "gradients are counted once more, as if accumulating them took a second copy",
    "bits_for_bytes": "an activation in bfloat16 is counted as 16 bytes, for it has 16 bits",
    "upside_down": "a batch below the bound is called compute-bound, as if the bound were the most tokens",
}
TOKENS = 1024
LABEL_GB = 80
_SAFETY = 1.25  # a batch this far on the right side of the bound is proposed


def right() -> dict[str, float]:
    """Return an account of XXL: bytes by kind for TOKENS tokens, devices for all of it, and a compute-bound batch."""
    held = parts_bytes(XXL, TOKENS)
    return {**held, "devices": devices(sum(held.values()), LABEL_GB), "tokens": _bound() * _SAFETY}


def mixed_units() -> dict[str, float]:
    """Return an account whose devices are GiB over GB."""
    return right() | {"devices": devices(sum(parts_bytes(XXL, TOKENS).values()), LABEL_GB, "GiB")}


def gradients_twice() -> dict[str, float]:
    """Return an account with 20 bytes per parameter."""
    held = parts_bytes(XXL, TOKENS)
    held["gradients"] *= 2
    return right() | held | {"devices": devices(sum(held.values()), LABEL_GB)}


def bits_for_bytes() -> dict[str, float]:
    """Return an account with eight times the activations."""
    held = parts_bytes(XXL, TOKENS, element_bytes=16)
    return right() | held | {"devices": devices(sum(held.values()), LABEL_GB)}


def upside_down() -> dict[str, float]:
    """Return an account that stays below the bound."""
    return right() | {"tokens": _bound() / _SAFETY}


def _bound() -> float:
    return least_tokens(NODE, XXL)


ACCOUNTS = {account.__name__: account for account in (right, mixed_units, gradients_twice, bits_for_bytes, upside_down)}
