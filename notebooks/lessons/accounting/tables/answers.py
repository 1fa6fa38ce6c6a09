"""The published answers beside ours: which differ, which mistake reproduces them, and the batch's derivation."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pandas as pd

from labkit.provenance import fact, of_source
from lessons.accounting.tables.memory import TPU_GB, states_bytes
from lessons.accounting.theory import (
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

DEVICES, SHARDS, BATCH = "H100 80GB equivalents", "smallest N_FSDP under 95 GB", "compute-bound batch"
ON_A_DEVICE, ROUNDED = "activations per token that a sharded device holds", "seconds of computing per token as rounded"
_MIXED = "GiB divided by GB"
_MISTAKES = {  # an answer that differs, and the mistake that reproduces it
    DEVICES: _MIXED,
    SHARDS: _MIXED,
    BATCH: "computing counts one matrix, on one device",
    ON_A_DEVICE: "one byte per number, without d_ff",
}


def answers(published: pd.DataFrame) -> pd.DataFrame:
    """Return a row per published answer: printed, ours, whether they agree, and the mistake that reproduces it.

    They agree where ours, rounded to the digits printed, is what was printed. `with_mistake` is our own figure with
    `mistake` built in; both are empty where the answer agrees or no known mistake gives it. A sample is one token. The
    shards are a number to be exceeded: ours is the fewest that fit, less 1. The batch is tokens per device, with
    weights and activations sent one after the other.
    """
    printed, unit = published.set_index("quantity")["value"], published.set_index("quantity")["unit"]
    states, token = states_bytes(), parts_bytes(XXL, 1)["activations"]
    ours = {
        "parameters": XXL.parameters,
        "weights+gradients+optimizer": number_in("GiB", states),
        "activations per sample": number_in("GiB", token),
        DEVICES: devices(states, 80),
        SHARDS: _most_too_few("GB"),
        BATCH: least_tokens(COURSE_MESH, XXL, at_once=False) / COURSE_MESH.devices,
        ON_A_DEVICE: number_in("GiB", Fraction(token, 2)),
    }
    mistaken = {
        DEVICES: devices(states, 80, "GiB"),
        SHARDS: _most_too_few("GiB"),
        BATCH: math.floor(derivation(published)["report"].iloc[-2]),
        ON_A_DEVICE: number_in("GiB", XXL.blocks * XXL.d_model),
    }
    rows = []
    for name, value in ours.items():
        same = agrees(printed[name], float(value))
        reproduced = not same and name in mistaken and agrees(printed[name], float(mistaken[name]))
        mistake, with_mistake = (_MISTAKES[name], mistaken[name]) if reproduced else ("", math.nan)
        rows.append((name, unit[name], printed[name], float(value), same, mistake, with_mistake))
    columns = ["quantity", "unit", "printed", "ours", "agrees", "mistake", "with_mistake"]
    return of_source(pd.DataFrame(rows, columns=columns).astype({"with_mistake": float}), fact(published, "source"))


def derivation(published: pd.DataFrame, mesh: Mesh = COURSE_MESH) -> pd.DataFrame:
    """Return the derivation of the compute-bound batch as a row per step: our formula and figure, then the report's.

    D, F, X, Y, C, W, M_X and M_Y are as in the notebook. Times are of one block's forward, in µs or in ns per token.
    `same` says whether both agree within 1 %. The last rows are the batch (ours in all and per device; the report's
    exact, and with its rounded time of computing) and what is printed.
    """
    printed = published.set_index("quantity")["value"]
    one = times(mesh, XXL, 1)
    computing_s = 2 * XXL.d_model * XXL.d_ff / mesh.flop_per_s  # the report's, per token
    least = least_tokens(mesh, XXL, at_once=False)
    exact, rounded = (one.fsdp_s / (per_token - one.tensor_s) for per_token in (computing_s, printed[ROUNDED]))
    rows = [
        ("gather weights, µs", "4DF / (Y·W·M_X)", 1e6 * one.fsdp_s, "4D/W · F/(2Y)", 1e6 * one.fsdp_s),
        ("exchange activations, ns per token", "4D / (X·W·M_Y)", 1e9 * one.tensor_s, "4D/W / X", 1e9 * one.tensor_s),
        ("compute, ns per token", "4DF / (X·Y·C)", 1e9 * one.math_s, "2DF / C", 1e9 * computing_s),
        ("batch, tokens in all", "weights / (compute − activations)", least, "the same", exact),
        ("batch with rounded compute", "–", math.nan, "compute = 3.8 µs", rounded),
        ("batch, tokens per device", "batch in all / (X·Y)", least / mesh.devices, "printed", printed[BATCH]),
    ]
    table = pd.DataFrame(rows, columns=["step", "our formula", "ours", "report's formula", "report"])
    table["same"] = ((table["report"] / table["ours"] - 1).abs() < 0.01).where(table["ours"].notna(), "–")
    return of_source(table, fact(published, "source"))


def _most_too_few(unit: str) -> float:
    """Return the most FSDP shards on which XXL's states do not fit devices of 95 of a unit; NaN where none fit."""
    fewest = smallest_fsdp(XXL, 0, of(TPU_GB, unit))
    return fewest - 1 if fewest else math.nan


def agrees(printed: float, ours: float) -> bool:
    """Say whether `ours`, rounded to as many digits as were printed, is what was printed."""
    digits = len(Decimal(str(printed)).normalize().as_tuple().digits)
    return float(f"{ours:.{digits}g}") == float(f"{printed:.{digits}g}")
