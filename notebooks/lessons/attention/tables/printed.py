"""The published attention times and memory recomputed: what a GPU allows, what grows, what was kept and gained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import fact, of_source
from labkit.tables.published import H100
from labkit.theory.sizes import MIB
from lessons.attention.plan import WIDTH
from lessons.attention.tables.speed import physics, rates
from lessons.attention.theory import square_bytes

_BATCH, _PRECISION = 8, "float32"  # of attention.csv, as the assignment asks
_NAMES = {"eager": "by_hand", "pytorch": "plain", "triton": "flash", "forward_backward": "both"}
_COLUMNS = ["problem", "implementation", "precision", "head_dim", "phase"]
_FITTED = 1024  # from this length on the memory follows one line; below it a workspace is not there yet


def printed_times(attention: pd.DataFrame) -> pd.DataFrame:
    """Return a row per printed time of attention.csv, in ms, with the least that an H100 needs and the verdict."""
    keys = ["problem", "mode", "head_dim", "sequence"]
    table = attention.melt(keys, ["forward_seconds", "backward_seconds"], "phase", "seconds")
    table = table.assign(
        implementation=table["mode"].replace(_NAMES),
        phase=table["phase"].str.removesuffix("_seconds"),
        heads=_BATCH,
        precision=_PRECISION,
        causal=False,
        gpu=H100.name,
        ms=1e3 * table["seconds"],
    )
    return _sourced(physics(table.drop(columns=["mode", "seconds"])), attention)


def printed_flash_times(flash_attention: pd.DataFrame) -> pd.DataFrame:
    """Return a row per printed time of flash_attention.csv, its least time, verdict, TFLOP/s and share of peak."""
    table = flash_attention.drop(columns="report").rename(columns={"milliseconds": "ms"})
    table = table.replace({"implementation": _NAMES, "phase": _NAMES}).assign(gpu=H100.name, heads=1, causal=True)
    return _sourced(rates(physics(table)), flash_attention)


def growth(checked: pd.DataFrame, first: int, last: int) -> pd.DataFrame:
    """Return, per printed column, how much the work (as N²) and the time grow from one sequence length to another.

    `exponent` is the power of N with which the time grows: 2 where it follows the work, 0 where it stays.
    """
    keys = [name for name in _COLUMNS if name in checked]
    ms = checked.pivot_table(index=keys, columns="sequence", values="ms")
    table = (ms[last] / ms[first]).rename("time").reset_index().assign(work=(last / first) ** 2)
    return _sourced(table.assign(exponent=np.log(table["time"]) / np.log(last / first)), checked)


def printed_backwards(checked: pd.DataFrame) -> pd.DataFrame:
    """Return, per setting, eager attention's backward in ms as two of the report's tables print it.

    `ratio` is first over second; `apart_ms` their difference, and `passes` how often an N×N matrix could pass through
    memory in it.
    """
    eager = checked[(checked["phase"] == "backward") & (checked["implementation"] == "by_hand")]
    table = eager.pivot_table(index=["head_dim", "sequence"], columns="problem", values="ms").reset_index()
    first, second = table["pytorch_attention"], table["torch_compile"]
    table = table.rename_axis(columns=None).assign(ratio=first / second, apart_ms=first - second)
    return _sourced(table.assign(passes=table["apart_ms"] / _pass_ms(table["sequence"], _BATCH)), checked)


def printed_memory(attention: pd.DataFrame) -> pd.DataFrame:
    """Return, per setting, the memory before backward, and the N×N matrices, N×d tensors and bytes per row in it.

    `squares`, `tensors`, `row_bytes` and `fixed_mib` are one least-squares fit of all lengths from 1024 on; `left_mb`
    is what the fit leaves of each setting. A softmax written by hand keeps the index of the maximum (8 bytes) and a sum
    (4 bytes) of each row.
    """
    table = attention.loc[attention["memory_gb"].notna(), ["head_dim", "sequence", "memory_gb"]].reset_index(drop=True)
    width, rows = WIDTH[_PRECISION], _BATCH * table["sequence"]
    square_mb = square_bytes(table["sequence"], table["sequence"], width, _BATCH) / 1e6
    shares = np.column_stack(
        [square_mb, rows * table["head_dim"] * width / 1e6, rows / 1e6, np.full(len(table), MIB / 1e6)]
    )
    printed_mb, fitted = table["memory_gb"] * 1e3, table["sequence"] >= _FITTED
    fit = np.linalg.lstsq(shares[fitted], printed_mb[fitted])[0]
    table["squares"], table["tensors"], table["row_bytes"], table["fixed_mib"] = fit
    table["left_mb"] = printed_mb - shares @ fit
    return _sourced(table, attention)


def printed_precisions(flash_checked: pd.DataFrame) -> pd.DataFrame:
    """Return, per setting, float32's time over bfloat16's, and the rates of both as shares of an H100's peaks.

    `share_of_fp32` is float32's rate over that of the units that are no tensor cores.
    """
    keys = ["implementation", "phase", "sequence", "head_dim"]
    wide = flash_checked.pivot_table(index=keys, columns="precision", values=["ms", "tflops"])
    table = pd.DataFrame({"ratio": wide["ms", "float32"] / wide["ms", "bfloat16"]})
    for precision, unit in (("float32", "fp32"), ("bfloat16", "bf16")):
        table[f"share_of_{unit}"] = wide["tflops", precision] / H100.tflops(unit)
    return _sourced(table.reset_index(), flash_checked)


def printed_speedups(flash_checked: pd.DataFrame) -> pd.DataFrame:
    """Return, per setting and phase, how many times as fast Triton is as PyTorch."""
    keys = ["phase", "precision", "head_dim", "sequence"]
    ms = flash_checked.pivot_table(index=keys, columns="implementation", values="ms")
    table = (ms["plain"] / ms["flash"]).rename("speedup").reset_index()
    return _sourced(table, flash_checked)


def _pass_ms(sequence: Any, heads: int) -> Any:
    """Return the milliseconds in which an N×N matrix of all heads passes through memory, per sequence length."""
    moved: Any = square_bytes(sequence, sequence, WIDTH[_PRECISION], heads)
    return 1e3 * limits.least_seconds_to_move(moved, H100.hbm_gb_per_s)


def _sourced(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    return of_source(table.reset_index(drop=True), fact(published, "source"))
