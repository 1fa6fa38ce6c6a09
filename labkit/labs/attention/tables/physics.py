"""The time that attention takes at least on a GPU, and the rate it reaches: for our rows and published ones alike."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from labkit.labs.attention.theory.work import PRODUCTS, flops, least_bytes, square_bytes
from labkit.node import limits

WIDTH = {"float32": 4, "bfloat16": 2}
# The fastest units that multiply such inputs: float32's may be cut to TF32, where a GPU knows it.
UNITS = {"float32": ("tf32", "fp32"), "bfloat16": ("bf16",)}

# These write N×N matrices and read them again. Not "compiled": torch.compile may put one fused kernel in their place.
WRITES_SCORES = ("plain", "by_hand")
PASSES = {"forward": 2, "backward": 1, "both": 3}  # over an N×N matrix: P written and read, and read in backward
CACHE_BYTES = 126 * 2**20  # the largest L2 of any GPU with a datasheet here (B200); of an H100 or H200 it is 50 MiB


def physics(table: pd.DataFrame) -> pd.DataFrame:
    """Give a table of times with what each row's GPU needs at least, and whether the row's time is possible.

    Takes the columns `implementation`, `phase` ("forward", "backward" or "both"), `heads` (batch × heads),
    `sequence`, `head_dim`, `precision` ("float32" or "bfloat16"), `causal`, `gpu` (its name) and `ms`.

    Adds `least_compute_ms`: the products that cannot be spared, at the tensor cores' rate. `least_move_ms`: inputs
    read and outputs written once; "plain" and "by_hand" also write and read N×N scores once, and read them once in
    backward, though they do so several times. Every matrix (all heads) counts only as far as it exceeds the largest
    L2 cache, for what stays there need not move. `least_ms` is the longer of the two, and `limit`, `share_of_limit`
    and `verdict` are `limits.check`'s for a least time.
    """
    rows = list(table.itertuples(index=False))
    made = table.assign(
        least_compute_ms=[_least_compute_ms(row) for row in rows], least_move_ms=[_least_move_ms(row) for row in rows]
    )
    made["least_ms"] = np.fmax(made["least_compute_ms"], made["least_move_ms"])
    return limits.check(made, "ms", "least_ms", kind="time")


def rates(table: pd.DataFrame) -> pd.DataFrame:
    """Give the same table with `tflops`, `peak_tflops` and `share_of_peak`.

    All implementations are credited with the same operations, those of FlashAttention (`theory.work.flops`); the peak
    is the tensor cores' for such inputs, with float32's taken as TF32.
    """
    rows = list(table.itertuples(index=False))
    made = table.assign(tflops=[_flops(row) / row.ms / 1e9 for row in rows], peak_tflops=[_tflops(row) for row in rows])
    return made.assign(share_of_peak=made["tflops"] / made["peak_tflops"])


def _flops(row) -> int:
    return flops(row.phase, row.sequence, row.sequence, row.head_dim, causal=row.causal, heads=row.heads)


def _least_compute_ms(row) -> float:
    # Who kept P need not multiply Q·Kᵀ again in backward; only flash attention must.
    spared = row.phase != "forward" and row.implementation != "flash"
    needed = 1 - spared / PRODUCTS[row.phase]
    return 1e3 * limits.least_seconds_to_compute(needed * _flops(row), _tflops(row))


def _least_move_ms(row) -> float:
    gpu, width = _spec(row), WIDTH[row.precision]
    moved = _beyond_cache(least_bytes(row.phase, row.sequence, row.sequence, row.head_dim, width, row.heads))
    if row.implementation in WRITES_SCORES:
        moved += PASSES[row.phase] * _beyond_cache(square_bytes(row.sequence, row.sequence, width, row.heads))
    return 1e3 * limits.least_seconds_to_move(moved, gpu and gpu.hbm_gb_per_s)


def _spec(row) -> limits.Spec | None:
    return limits.spec(None if pd.isna(row.gpu) else row.gpu)


def _beyond_cache(matrix_bytes: int) -> int:
    return max(matrix_bytes - CACHE_BYTES, 0)


def _tflops(row) -> float:
    gpu = _spec(row)
    known = (gpu.tflops(unit) for unit in UNITS[row.precision]) if gpu else ()
    return next((rate for rate in known if rate), math.nan)
