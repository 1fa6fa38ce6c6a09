"""The published answers beside ours: which differ, and which mistake gives just what was printed."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import product

import pandas as pd

from labkit.labs.accounting.tables.account import TPU_GB, states_bytes
from labkit.labs.accounting.theory import (
    COURSE_MESH,
    XXL,
    Mesh,
    devices,
    least_tokens,
    number_in,
    of,
    parts_bytes,
    smallest_fsdp,
    times,
)
from labkit.provenance import fact, of_source

_QUANTITIES = (
    "parameters",
    "weights+gradients+optimizer",
    "activations per sample",
    "H100 80GB equivalents",
    "smallest N_FSDP under 95 GB",
    "compute-bound batch",
)
_MIXED = "GiB divided by GB"
_COLUMNS = ["quantity", "unit", "printed", "ours", "agrees", "mistaken", "mistake"]


def answers(published: pd.DataFrame) -> pd.DataFrame:
    """Return a row per published quantity: printed, ours, whether they agree to the digits printed, and the mistake.

    `mistaken` is what the same function gives with one mistake, named where it is what was printed. A sample is one
    token. "exclusive" is a number to be exceeded: ours is then the fewest less 1. The batch is ours a device, in turn.
    """
    printed = published.set_index("quantity")["value"]
    states, token = states_bytes(), parts_bytes(XXL, 1)["activations"]
    mixed = {_QUANTITIES[3]: devices(states, 80, "GiB"), _QUANTITIES[4]: _most_too_few("GiB")}
    ours = dict(
        zip(
            _QUANTITIES,
            (
                XXL.parameters,
                number_in("GiB", states),
                number_in("GiB", token),
                devices(states, 80),
                _most_too_few("GB"),
                least_tokens(COURSE_MESH, XXL, at_once=False) / COURSE_MESH.devices,
            ),
            strict=True,
        )
    )
    rows = []
    for name, unit in published.set_index("quantity")["unit"].items():
        value = printed[name]
        found = mixed.get(name) if name in mixed else _mistaken_batch(value) if name == _QUANTITIES[5] else None
        mistake = _MIXED if name in mixed else "see mistakes"
        same = agrees(value, ours[name])
        named = not same and found is not None and agrees(value, found)
        rows.append((name, unit, value, ours[name], same, found, mistake if named else ""))
    table = pd.DataFrame(rows, columns=_COLUMNS).astype({"mistaken": float})
    return of_source(table, fact(published, "source"))


def _most_too_few(unit: str) -> float:
    """Return the most FSDP shards on which XXL's states do not fit devices of 95 of a unit; NaN where none fit."""
    fewest = smallest_fsdp(XXL, 0, of(TPU_GB, unit))
    return fewest - 1 if fewest else math.nan


def agrees(printed: float, ours: float) -> bool:
    """Say whether `ours`, rounded to as many digits as were printed, is what was printed."""
    digits = len(Decimal(str(printed)).normalize().as_tuple().digits)
    return float(f"{ours:.{digits}g}") == float(f"{printed:.{digits}g}")


def mistakes(mesh: Mesh = COURSE_MESH, printed: float = 641.0) -> pd.DataFrame:
    """Return a row per way to get the compute-bound batch, right or with up to three mistakes: its tokens, `gives`.

    Mistakes: M_X left out; W taken in one direction; in tensor parallelism's time the batch of a device where that
    of all belongs. Each is tried at once and in turn, and given in all and a device.
    """
    rows = []
    for axes, half, own, at_once, each in product((False, True), repeat=5):
        if own and at_once:
            continue  # there tensor parallelism's time does not count
        other = Mesh(
            mesh.fsdp,
            mesh.tensor,
            1 if axes else mesh.fsdp_axes,
            mesh.tensor_axes,
            mesh.flop_per_s,
            mesh.axis_bytes_per_s / (2 if half else 1),
        )
        one = times(other, XXL, 1)
        exchanged = 0 if at_once else one.tensor_s / (other.devices if own else 1)
        tokens = one.fsdp_s / (one.math_s - exchanged) / (other.devices if each else 1)
        made = {"M_X left out": axes, "W in one direction": half, "a device's batch as the whole": own}
        rows.append(
            (
                ", ".join(name for name, is_made in made.items() if is_made) or "none",
                "at once" if at_once else "in turn",
                "a device" if each else "in all",
                tokens,
            )
        )
    table = pd.DataFrame(rows, columns=["mistakes", "weights and activations", "batch", "gives"])
    table["is_printed"] = [agrees(printed, value) for value in table["gives"]]
    return of_source(table, "theory, with mistakes", printed=printed)


def _mistaken_batch(printed: float) -> float | None:
    table = mistakes(printed=printed)
    return next(iter(table.loc[table["is_printed"] & (table["mistakes"] != "none"), "gives"]), None)
