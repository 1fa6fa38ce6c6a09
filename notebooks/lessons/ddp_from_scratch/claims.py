"""What a report claims about naive, flat, overlapped and bucketed gradients of XL on two GPUs, recomputed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from labkit.engine.recordings import replay
from labkit.node import limits
from labkit.tables.claims import Figures
from labkit.tables.published import H100, published
from labkit.theory.sizes import MB, MIB
from labkit.theory.traffic import bucket_count
from labkit.theory.transformer import SIZES, transformer
from lessons.ddp_from_scratch.tables import implementations, overhead, row_of

_RUNS = "h200x2/ddp_from_scratch/"
_MODEL = transformer(*SIZES["xl"][:3])
_GRADIENT_BYTES = 4 * _MODEL.parameters  # float32; each of two GPUs sends as much in a ring
_SAME = 0.02  # largest relative difference of two steps that count as equal


def step_s(implementation: str, bucket_mb: float | None = None, column: str = "step_seconds") -> float:
    """Return a printed time in seconds; NaN for a word such as "OOM"."""
    table = published("ddp_from_scratch")
    rows = table[table["implementation"] == implementation]
    rows = rows if bucket_mb is None else rows[rows["bucket_mb"] == bucket_mb]
    return float(pd.to_numeric(rows[column], errors="coerce").iloc[0])


def _sent_s(implementation: str) -> float:
    return step_s(implementation, column="communication_seconds")


def naive_steps() -> tuple[float, float]:
    """Return naive's two printed steps: of the first table, and of the table beside overlapped gradients."""
    return step_s("naive"), step_s("individual")


def _band_s() -> float:
    """Return the seconds by which naive's two printed steps differ: printed times that are closer have no order."""
    first, again = naive_steps()
    return abs(first - again)


def _noise() -> float:
    return max(naive_steps()) / min(naive_steps()) - 1


def _longer_than_naive(printed_s: float, *_: Any) -> bool | None:
    """Return whether a printed step is longer than both naive steps by more than the band, or shorter; else None."""
    differences_s = [printed_s - naive_s for naive_s in naive_steps()]
    if min(map(abs, differences_s)) <= _band_s() or min(differences_s) < 0 < max(differences_s):
        return None
    return differences_s[0] > 0


def _recorded_steps(positions: int) -> pd.DataFrame:
    """Return our recorded steps on 2 × H200 at the report's batch, 32 sequences, with this number of positions."""
    return implementations(replay(f"{_RUNS}report_{positions}"))


def _flat_longer_ms() -> float:
    table = _recorded_steps(128)
    return float(row_of(table, "flat")["step_ms"] - row_of(table, "naive")["step_ms"])


def _naive_ms(positions: int) -> float:
    return float(row_of(_recorded_steps(positions), "naive")["step_ms"])


def _least_ms() -> list[float]:
    """Return the least time of all gradients by NVLink and by PCIe, in ms."""
    rates = (H100.nvlink_gb_per_s, H100.pcie_gb_per_s)
    return [1e3 * limits.least_seconds_to_move(_GRADIENT_BYTES, rate) for rate in rates]


def _by_nvlink(printed_ms: float, *_: Any) -> bool:
    nvlink_ms, pcie_ms = _least_ms()
    return nvlink_ms <= printed_ms < pcie_ms


def _calls(cap_mb: float) -> int:
    """Return how many all-reduces buckets of this size make of XL's gradients."""
    return bucket_count(_MODEL.shapes, 4, cap=round(cap_mb * MB), first=round(cap_mb * MB))


def _stated(statement: str) -> str:
    """Return a statement of the report's text; an empty string if it gives no value."""
    return str(published("ddp_from_scratch_statements").set_index("statement")["value"].fillna("")[statement])


def _best_number() -> str:
    number = overhead(replay(f"{_RUNS}buckets")).iloc[0]["optimum_buckets"]
    return f"{number:.1f} buckets, of {_GRADIENT_BYTES / number / MB:.0f} MB"


def _peak() -> str:
    return f"{row_of(_recorded_steps(128), 'bucketed')['peak_mib'] * MIB / 1e9:.1f} of 80 GB"


FIGURES = {
    "naive_step": Figures(
        lambda: step_s("naive"),
        lambda: step_s("individual"),
        lambda first, again: True if abs(again / first - 1) <= _SAME else None,
    ),
    "naive_sends": Figures(
        lambda: 1e3 * _sent_s("naive"),
        lambda: "at least {:.1f} ms by NVLink, {:.0f} ms by PCIe".format(*_least_ms()),
        _by_nvlink,
    ),
    "flat_is_slower": Figures(
        lambda: 1e3 * (step_s("flat") - step_s("naive")),
        _flat_longer_ms,
        lambda *_: _longer_than_naive(step_s("flat")),
    ),
    "size_1_against_10": Figures(
        lambda: round(100 * (step_s("bucketed", 1) / step_s("bucketed", 10) - 1), 1),
        lambda: 100 * (_calls(1) / _calls(10) - 1),
        lambda printed, more: True if more > 0 and printed > 100 * _noise() else None,
    ),
    "best_number": Figures(
        lambda: _stated("best number of buckets"), _best_number, lambda printed, _: printed == "√(s/(w·o))"
    ),
    "large_buckets_do_not_fit": Figures(
        lambda: "out of memory" if np.isnan(step_s("bucketed", 1000)) else "ran",
        _peak,
        lambda printed, _: False if printed == "ran" else None,
    ),
    "batch_of_32": Figures(
        lambda: f"{_stated('total batch size')} sequences, {1e3 * step_s('naive'):.0f} ms",
        lambda: ", ".join(f"{_naive_ms(positions):.0f} ms with {positions} positions" for positions in (32, 128)),
        lambda *_: None if any(1e3 * step_s("naive") < 2 * _naive_ms(positions) for positions in (32, 128)) else False,
    ),
}
