"""The time that attention takes at least on a GPU, and the rate it reaches: for our rows and published ones alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import of_run
from labkit.theory.sizes import MIB
from lessons.attention.plan import OURS, WIDTH
from lessons.attention.theory import PHASES, PRODUCTS, flops, least_bytes, square_bytes

if TYPE_CHECKING:
    from labkit.engine.run import Run

# The fastest units that multiply such inputs: float32's may be cut to TF32, where a GPU knows it.
_UNITS = {"float32": ("tf32", "fp32"), "bfloat16": ("bf16",)}

# These write N×N matrices and read them again. Not "compiled": torch.compile may put one fused kernel in their place.
_WRITES_SCORES = ("plain", "by_hand")
_PASSES = {"forward": 2, "backward": 1, "both": 3}  # over an N×N matrix: P written and read, and read in backward
CACHE_BYTES = 126 * MIB  # the largest L2 of any GPU with a datasheet here (B200); of an H100 or H200 it is 50 MiB


def physics(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of times with what each row's GPU needs at least, and whether the row's time is possible.

    Takes the columns `implementation`, `phase` ("forward", "backward" or "both"), `heads` (batch × heads),
    `sequence`, `head_dim`, `precision` ("float32" or "bfloat16"), `causal`, `gpu` (its name) and `ms`.

    Adds `least_compute_ms`: the products that cannot be spared, at the tensor cores' rate. `least_move_ms`: inputs
    read and outputs written once; "plain" and "by_hand" also write and read N×N scores once, and read them once in
    backward, though they do so several times. Every matrix (all heads) counts only as far as it exceeds the largest
    L2 cache, for what stays there need not move. `least_ms` is the longer of the two, and `limit`, `share_of_limit`
    and `verdict` are `limits.against_limit`'s for a least time.
    """
    rows = list(table.itertuples(index=False))
    checked = table.assign(
        least_compute_ms=[_least_compute_ms(row) for row in rows], least_move_ms=[_least_move_ms(row) for row in rows]
    )
    checked["least_ms"] = np.fmax(checked["least_compute_ms"], checked["least_move_ms"])
    return limits.against_limit(checked, "ms", "least_ms", kind="time")


def rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same table with `tflops`, `peak_tflops` and `share_of_peak`.

    All implementations are credited with the same operations, those of FlashAttention (`theory.flops`); the peak
    is the tensor cores' for such inputs, with float32's taken as TF32.
    """
    rows = list(table.itertuples(index=False))
    rated = table.assign(
        tflops=[_flops(row) / row.ms / 1e9 for row in rows], peak_tflops=[_tflops(row) for row in rows]
    )
    return rated.assign(share_of_peak=rated["tflops"] / rated["peak_tflops"])


def _flops(row) -> int:
    return flops(row.phase, row.sequence, row.sequence, row.head_dim, causal=row.causal, heads=row.heads)


def _least_compute_ms(row) -> float:
    # Who kept P need not multiply Q·Kᵀ again in backward; only flash attention must.
    spared = row.phase != "forward" and row.implementation not in OURS
    needed = 1 - spared / PRODUCTS[row.phase]
    return 1e3 * limits.least_seconds_to_compute(needed * _flops(row), _tflops(row))


def _least_move_ms(row) -> float:
    gpu, width = _spec(row), WIDTH[row.precision]
    moved = _beyond_cache(least_bytes(row.phase, row.sequence, row.sequence, row.head_dim, width, row.heads))
    if row.implementation in _WRITES_SCORES:
        moved += _PASSES[row.phase] * _beyond_cache(square_bytes(row.sequence, row.sequence, width, row.heads))
    return 1e3 * limits.least_seconds_to_move(moved, gpu and gpu.hbm_gb_per_s)


def _spec(row) -> limits.Spec | None:
    return limits.spec(None if pd.isna(row.gpu) else row.gpu)


def _beyond_cache(matrix_bytes: int) -> int:
    return max(matrix_bytes - CACHE_BYTES, 0)


def _tflops(row) -> float:
    gpu = _spec(row)
    rates_of_units = (gpu.tflops(unit) for unit in _UNITS[row.precision]) if gpu else ()
    return next((rate for rate in rates_of_units if rate), math.nan)


_SETTING = ["implementation", "clock", "precision", "head_dim", "sequence"]
_KNOWN = ["point", *_SETTING, "heads", "causal", "phase", "ms", "low_ms", "high_ms", "repeats", "status"]
_OURS, _RIVALS = "flash", ("sdpa_flash", "plain")  # the first rival that a run has is the one


def race(run: Run) -> pd.DataFrame:
    """Return, per setting, clock and phase: ms with quartiles and status, `versus`, and what the GPU allows.

    `versus`: ms over those of the fact `rival` with the same clock, setting and phase: SDPA-flash, or plain attention
    where a run has no SDPA-flash. The captured clock has no backward of its own: it is "both" less "forward", without
    quartiles. A phase that a point did not reach has its status and no ms. From `physics` and `rates`: limit,
    share_of_limit, verdict, tflops, share_of_peak.
    """
    table = _timed(run)
    rival = rival_of(run.plan)
    cell = [*_SETTING[1:], "phase"]
    rivals = table[table["implementation"] == rival].set_index(cell)["ms"].rename("rival_ms")
    table = table.join(rivals, on=cell)
    table["versus"] = table["ms"] / table["rival_ms"]
    return _named(rates(physics(table.drop(columns=["point", "rival_ms"]))), run, rival=rival)


def rival_of(plan: Any) -> str:
    """Return whose times ours are compared with: torch's FlashAttention-2, or plain attention where a run has none."""
    return next((name for name in _RIVALS if name in plan.implementations), _RIVALS[-1])


def sweep(run: Run) -> pd.DataFrame:
    """Return, per setting and phase: plain_ms, flash_ms, speed_up (plain over ours), plain_status.

    `plain_status` tells where plain attention ran out of memory.
    """
    table, index = _timed(run), ["precision", "head_dim", "sequence", "phase"]
    ours, plain = (table[table["implementation"] == name].set_index(index) for name in (_OURS, "plain"))
    compared = pd.DataFrame({"plain_ms": plain["ms"], "flash_ms": ours["ms"], "plain_status": plain["status"]})
    compared["speed_up"] = compared["plain_ms"] / compared["flash_ms"]
    return _named(compared.reset_index(), run)


def _timed(run: Run) -> pd.DataFrame:
    """Return a row per point and phase, the captured backward and phases not reached included."""
    rows = run.rows
    table = rows.reindex(columns=_KNOWN).assign(clock=rows.get("clock", "launched"))
    table["gpu"] = run.node.gpus[0].name if run.plan.device == "cuda" else None
    phases = zip(table["phase"], table["status"], strict=True)
    table["phase"] = [[phase] if status == "ok" else list(PHASES) for phase, status in phases]
    table = _over_seeds(table.explode("phase"))
    if (table["clock"] == "captured").any():
        table = pd.concat([table, _captured_backward(table)]).drop_duplicates([*_SETTING, "phase"])
    return table.sort_values(["point", "phase"], key=_in_order, ignore_index=True)


def _over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per setting and phase: medians over the seeds; not "ok" where no seed reached it."""
    keys, times = [*_SETTING, "phase"], ["ms", "low_ms", "high_ms"]
    table = table.astype(dict.fromkeys([*times, "repeats"], float))
    groups = table.groupby(keys, sort=False)
    medians = groups[times].median().join(groups["repeats"].sum(min_count=1))
    reached_first = table.sort_values("status", key=lambda status: status != "ok", kind="stable")
    return reached_first.drop_duplicates(keys).drop(columns=[*times, "repeats"]).join(medians, on=keys)


def _captured_backward(table: pd.DataFrame) -> pd.DataFrame:
    captured = table[table["clock"] == "captured"]
    forward, both = (captured[captured["phase"] == phase].set_index(_SETTING) for phase in ("forward", "both"))
    unknown = dict.fromkeys(("low_ms", "high_ms", "repeats"), float("nan"))
    return both.assign(phase="backward", ms=both["ms"] - forward["ms"], **unknown).reset_index()


def _in_order(column: pd.Series) -> pd.Series:
    return column.map(PHASES.index) if column.name == "phase" else column


def _named(table: pd.DataFrame, run: Run, **facts: Any) -> pd.DataFrame:
    """Return the table with where it comes from; `interpreted` where no GPU ran the kernels."""
    return of_run(table.reset_index(drop=True), run, interpreted=run.plan.device != "cuda", **facts)
