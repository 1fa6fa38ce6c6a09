"""The published table re-computed: what repeats, what a link allows, how many calls a bucket size means, what fits."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import like
from labkit.theory.traffic import buckets
from labkit.theory.transformer import SIZES, transformer

_GPU: Any = limits.spec("NVIDIA H100 80GB HBM3")  # the report says "H100"; this is the one with NVLink
_GPUS = 2
_MODEL = transformer(*SIZES["xl"][:3])
_GRADIENT_BYTES = 4 * _MODEL.parameters  # float32
_MB, MIB = 1e6, 2**20


def everything(printed: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every table of this file by name, as `doubt_reports` takes them."""
    tables = {
        "repeats": _repeats(printed),
        "sizes": _sizes(printed),
        "hidden": _hidden(printed),
        "flat": _flat(printed),
        "links": _links(printed),
        "optimum": _optimum(printed),
        "memory": _memory(printed),
    }
    return {name: like(table, printed) for name, table in tables.items()}


def _repeats(printed: pd.DataFrame) -> pd.DataFrame:
    """Return the printed steps of one configuration, single parameters overlapped: as printed, step_s, over_least."""
    rows = printed[printed["implementation"].str.contains("individual")]
    table = rows[["implementation", "step_seconds"]].set_axis(["printed", "step_s"], axis=1).reset_index(drop=True)
    table["step_s"] = table["step_s"].astype(float)
    return table.assign(over_least=table["step_s"] / table["step_s"].min() - 1)


def _sizes(printed: pd.DataFrame) -> pd.DataFrame:
    """Return every pair of bucket sizes that ran: their steps, how far apart, and how many calls each means here.

    Columns: small_mb, large_mb, small_s, large_s, apart (share of the less), small_calls, large_calls, large_mib_calls
    (if MB was to mean MiB), call_ms (what each call more would have to cost; nan where there is none). Calls are those
    of buckets that are closed once they hold their size, over the parameters of the course's XL.
    """
    rows = []
    for small, large in combinations(_bucketed(printed).itertuples(), 2):
        calls = [_calls(mb * _MB) for mb in (small.bucket_mb, large.bucket_mb)]
        more, slower_s = calls[0] - calls[1], small.step_s - large.step_s
        rows.append(
            {
                "small_mb": small.bucket_mb,
                "large_mb": large.bucket_mb,
                "small_s": small.step_s,
                "large_s": large.step_s,
                "apart": abs(slower_s) / min(small.step_s, large.step_s),
                "small_calls": calls[0],
                "large_calls": calls[1],
                "large_mib_calls": _calls(large.bucket_mb * MIB),
                "call_ms": 1e3 * slower_s / more if more else np.nan,
            }
        )
    return pd.DataFrame(rows)


def _hidden(printed: pd.DataFrame) -> pd.DataFrame:
    """Give, for every overlapped step, what it saves beside the naive one, as a share of that one's communication."""
    naive = _row(printed, "naive")
    rows = printed[printed["implementation"].str.contains("individual|bucketed")]
    rows = rows[_ran(rows)]
    bucket = rows["bucket_mb"].map(lambda mb: f" {mb:g} MB", na_action="ignore").fillna("")
    saved_s = naive["step_s"] - rows["step_seconds"].astype(float)
    table = pd.DataFrame({"printed": rows["implementation"] + bucket, "saved_s": saved_s})
    return table.assign(share=table["saved_s"] / naive["communication_s"]).reset_index(drop=True)


def _flat(printed: pd.DataFrame) -> pd.DataFrame:
    """Give, in one row, by how much flat is slower than naive, in all and in communication, and what copying takes.

    `copy_s`: all gradients read and written into the flat tensor, and back, at the GPU's memory rate.
    """
    naive, one = _row(printed, "naive"), _row(printed, "flat")
    copy_s = limits.least_seconds_to_move(4 * _GRADIENT_BYTES, _GPU.hbm_gb_per_s)
    return pd.DataFrame(
        [
            {
                "slower_s": one["step_s"] - naive["step_s"],
                "communication_s": one["communication_s"] - naive["communication_s"],
                "copy_s": copy_s,
            }
        ]
    )


def _links(printed: pd.DataFrame) -> pd.DataFrame:
    """Return each printed communication: seconds, share of the step, GB sent, rate; and the link's limit and verdict.

    The rate is a ring's, in GB/s through a GPU's links; `pcie_s` is the least that PCIe would take.
    """
    rows = printed[printed["communication_seconds"].notna()]
    spec, moved_bytes = _GPU, 2 * (_GPUS - 1) / _GPUS * _GRADIENT_BYTES
    communication_s = rows["communication_seconds"].astype(float)
    table = pd.DataFrame(
        {
            "implementation": rows["implementation"],
            "communication_s": communication_s,
            "share_of_step": communication_s / rows["step_seconds"].astype(float),
            "sent_gb": moved_bytes / 1e9,
            "gb_per_s": moved_bytes / communication_s / 1e9,
            "least_s": limits.least_seconds_to_move(moved_bytes, spec.nvlink_gb_per_s),
            "pcie_s": limits.least_seconds_to_move(moved_bytes, spec.pcie_gb_per_s),
        }
    ).reset_index(drop=True)
    return limits.against_limit(table, "gb_per_s", limits.ring_bus_limit_gb_per_s(spec))


def _optimum(printed: pd.DataFrame) -> pd.DataFrame:
    """Return base + n·o + s/(n·w) through the printed sizes, as printed and with each step moved by half a spread.

    Columns: base_s, overhead_ms (o), gb_per_s (w) and best_mb, √(s·w·o); these are nan where o or 1/w comes out
    negative, so that no size is best. n is s over the bucket's size, as in the report's formula. The first row is as
    printed; half a spread is half of what one configuration's repeats are apart.
    """
    rows = _bucketed(printed)
    size_bytes, steps = rows["bucket_mb"].to_numpy() * _MB, rows["step_s"].to_numpy()
    design = np.column_stack([np.ones(len(rows)), _GRADIENT_BYTES / size_bytes, size_bytes])
    half_s = np.ptp(_repeats(printed)["step_s"]) / 2
    moves = np.array([(0,) * len(rows), *product((-1, 1), repeat=len(rows))])
    fits = [np.linalg.lstsq(design, steps + half_s * move)[0] for move in moves]
    base_s, overhead_s, per_byte_s = np.transpose(fits)
    sound = (overhead_s > 0) & (per_byte_s > 0)
    table = pd.DataFrame({"base_s": base_s, "overhead_ms": 1e3 * overhead_s}).assign(gb_per_s=1 / per_byte_s / 1e9)
    table["best_mb"] = np.sqrt(_GRADIENT_BYTES * np.where(sound, overhead_s / per_byte_s, np.nan)) / _MB
    return table.where(pd.Series(sound), np.nan)


def _memory(printed: pd.DataFrame) -> pd.DataFrame:
    """Return what each implementation that is flat or bucketed keeps besides the gradients: bucket_gb, states_gb, ran.

    `bucket_gb` is one bucket: the whole model's gradients in the flat one. `states_gb`: weights, gradients and AdamW's
    two states in float32. GB of 10^9 bytes; `limit_gb` is the GPU's.
    """
    rows = printed[printed["implementation"].isin(["flat", "bucketed"])]
    size_gb = rows["bucket_mb"].astype(float).mul(_MB).fillna(_GRADIENT_BYTES) / 1e9
    return pd.DataFrame(
        {
            "implementation": rows["implementation"],
            "bucket_gb": size_gb,
            "ran": _ran(rows),
            "states_gb": 4 * _GRADIENT_BYTES / 1e9,
            "limit_gb": _GPU.memory_gb,
        }
    ).reset_index(drop=True)


def _calls(cap_bytes: float) -> int:
    return buckets(_MODEL.shapes, 4, cap=round(cap_bytes), first=round(cap_bytes))


def _ran(rows: pd.DataFrame) -> pd.Series:
    return pd.to_numeric(rows["step_seconds"], errors="coerce").notna()


def _bucketed(printed: pd.DataFrame) -> pd.DataFrame:
    rows = printed[(printed["implementation"] == "bucketed") & _ran(printed)]
    return rows.assign(step_s=rows["step_seconds"].astype(float))[["bucket_mb", "step_s"]]


def _row(printed: pd.DataFrame, implementation: str) -> pd.Series:
    row = printed[printed["implementation"] == implementation].iloc[0]
    return row[["step_seconds", "communication_seconds"]].astype(float).set_axis(["step_s", "communication_s"])
