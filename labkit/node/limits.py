"""What a GPU can do at best, and which measurements beat it.

A rate is what a datasheet states, so it is an upper bound that nothing reaches. Where no datasheet is known the
answer is "no limit known", never a guess. Units: GB = 1e9 bytes, TFLOP = 1e12 operations, and bandwidths are for one
direction.
"""

import csv
import functools
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


VERDICTS = ("ok", "impossible", "suspiciously low", "no limit known", "not measured")

# Datasheets round to three digits, and clocks and timers resolve about a percent: less than this is no contradiction.
RESOLUTION = 0.02


@dataclass(frozen=True)
class Spec:
    """One GPU's datasheet: GB, GB/s in one direction, dense TFLOP/s by precision; None where the sheet says nothing.

    The rate of an NVLink is the one that `nvidia-smi nvlink -s` shows, where a source says so: 26.562 GB/s on an H100
    or H200, 18 of them 478. Their datasheets print 900 GB/s, which counts both directions.
    """

    name: str
    memory_gb: float | None
    hbm_gb_per_s: float | None
    nvlink_links: float | None
    nvlink_gb_per_s_per_link: float | None
    pcie_gb_per_s: float | None
    fp32_tflops: float | None
    tf32_tflops: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    source: str

    @property
    def nvlink_gb_per_s(self) -> float | None:
        """All NVLinks of the GPU together; None where it has none or their rate is not known."""
        if not self.nvlink_links or self.nvlink_gb_per_s_per_link is None:
            return None
        return self.nvlink_links * self.nvlink_gb_per_s_per_link

    def tflops(self, precision: str) -> float | None:
        """Dense TFLOP/s for "fp32", "tf32", "bf16", "fp16" or "fp8"."""
        rates = {f.name.removesuffix("_tflops"): f.name for f in fields(self) if f.name.endswith("_tflops")}
        if precision not in rates:
            raise ValueError(f"precision {precision!r} is none of {', '.join(rates)}")
        return getattr(self, rates[precision])


def spec(gpu_name: str | None) -> Spec | None:
    """The datasheet of a GPU by the name that nvidia-smi prints; None when no limit is known.

    The match is exact but for case, spacing and the brand words "NVIDIA" and "Tesla", which drivers print or leave
    out. Memory variants and MIG slices are other names: their rates differ.
    """
    return all_specs().get(_normalise_name(gpu_name)) if gpu_name else None


def least_seconds_to_move(moved_bytes, gb_per_s):
    """The least time for these bytes at this rate, in seconds; numbers or columns, NaN for a rate of None."""
    return moved_bytes / ((math.nan if gb_per_s is None else gb_per_s) * 1e9)


def least_seconds_to_compute(flops, tflops):
    """The least time for these floating-point operations at this rate, in seconds; NaN for a rate of None."""
    return flops / ((math.nan if tflops is None else tflops) * 1e12)


def ring_bus_limit_gb_per_s(spec: Spec | None) -> float | None:
    """The bus bandwidth that no ring beats: what one GPU sends, over all its NVLinks or else over PCIe.

    Bus bandwidth is defined so that it compares with this link rate for any number of ranks: algorithm bandwidth
    times 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for broadcast
    (nccl-tests, doc/PERFORMANCE.md).
    """
    if spec is None:
        return None
    # nvlink_links is 0 where the GPU surely has none; None would mean that nobody knows.
    return spec.pcie_gb_per_s if spec.nvlink_links == 0 else spec.nvlink_gb_per_s


def bus_bandwidth_limit(spec: Spec | None, ranks: int, collective: str) -> float | None:
    """The highest bus bandwidth of a collective in GB/s: a ring's, and for "all-reduce" in-switch reduction's (NVLS).

    With B what one GPU sends over its links and S bytes to reduce:

    - ring, and anything else made of sends and receives: each GPU sends 2(n-1)/n S, so the bus bandwidth is at
      most B.
    - in-switch: the NVSwitch adds and multicasts. Each GPU sends its S once for the sum and S/n of result, so
      S/t <= B n/(n+1). nccl-tests still multiplies by 2(n-1)/n, so the number that it prints is at most
      2(n-1)/(n+1) B: more than B from four ranks on, 1.2 B there and 1.56 B at eight.

    The factor 2(n-1)/n is from nccl-tests, doc/PERFORMANCE.md; the (n+1) sends a GPU, from NVIDIA's NVSwitch talk at
    Hot Chips 34. Other collectives gain nothing in the switch.
    """
    if ranks < 2:
        raise ValueError(f"a collective needs 2 ranks or more, not {ranks}")
    link = ring_bus_limit_gb_per_s(spec)
    if link is None or collective != "all-reduce":
        return link
    return link * max(1.0, 2 * (ranks - 1) / (ranks + 1))


def against_limit(
    table: "pd.DataFrame",
    measured: str,
    limit: str | float | None,
    *,
    kind: str = "rate",
    low: float | None = None,
) -> "pd.DataFrame":
    """A copy of the table with `limit`, `share_of_limit` and `verdict`, for our rows and for published ones alike.

    `measured` names a column; `limit` names one or is a number in the same unit. A rate's limit is the highest rate
    (share = measured / limit), a time's is the least time (share = limit / measured).

    verdict: "impossible" where the share exceeds 1 + RESOLUTION, and for what no clock can show: a negative number,
    an infinite rate, a time of zero. "suspiciously low" below the share `low`, and for a rate of zero or an endless
    time. "not measured" where the measurement is NaN (out of memory, for one). "no limit known" where the limit is
    missing or is no positive finite number. "ok" otherwise.
    """
    if kind not in ("rate", "time"):
        raise ValueError(f'kind is "rate" or "time", not {kind!r}')
    values = _column(table, measured)
    limits = _column(table, limit) if isinstance(limit, str) else [math.nan if limit is None else limit] * len(table)
    # 0.0 for an unknown limit would divide: anything that bounds nothing becomes NaN first.
    limits = [top if 0 < top < math.inf else math.nan for top in map(float, limits)]
    shares = [_share(value, top, kind) for value, top in zip(values, limits, strict=True)]
    verdicts = [
        _verdict(value, top, share, kind, low) for value, top, share in zip(values, limits, shares, strict=True)
    ]
    return table.assign(limit=limits, share_of_limit=shares, verdict=verdicts)


def _share(value: float, limit: float, kind: str) -> float:
    if kind == "rate":
        return value / limit
    return limit / value if value else math.inf * limit


def _verdict(value: float, limit: float, share: float, kind: str, low: float | None) -> str:
    if math.isnan(value):
        return "not measured"
    if value < 0 or (kind == "rate" and value == math.inf) or (kind == "time" and value == 0):
        return "impossible"
    if math.isnan(limit):
        return "no limit known"
    if share > 1 + RESOLUTION:
        return "impossible"
    return "suspiciously low" if share == 0 or (low is not None and share < low) else "ok"


def _column(table: "pd.DataFrame", name: str) -> list[float]:
    if name not in table:
        raise ValueError(f"{name!r} is no column of this table; it has {', '.join(map(str, table.columns))}")
    missing = table[name].isna()
    return [math.nan if gone else float(value) for value, gone in zip(table[name], missing, strict=True)]


def _normalise_name(gpu_name: str) -> str:
    words = gpu_name.lower().split()
    while words and words[0] in ("nvidia", "tesla"):
        words = words[1:]
    return " ".join(words)


@functools.cache
def all_specs() -> dict[str, Spec]:
    with Path(__file__).with_name("specs.csv").open(encoding="utf-8", newline="") as file:
        specs = [_spec_of(row) for row in csv.DictReader(file)]
    return {_normalise_name(spec.name): spec for spec in specs}


def _spec_of(row: dict[str, str]) -> Spec:
    """Return the Spec of a row of text; an empty cell is a figure that the manufacturer does not state."""
    name, source = row.pop("name"), row.pop("source")
    rates: dict[str, Any] = {column: float(text) if text else None for column, text in row.items()}
    return Spec(name=name, source=source, **rates)
