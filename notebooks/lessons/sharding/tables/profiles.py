"""Rows of the profiler and of the allocator → two strategies kernel by kernel, and one rank's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import made_from, of_run
from labkit.tables.profile import MOMENT, at_setting, point_in_words
from labkit.tables.profile import profile as profile
from labkit.tables.profile import trace_spans as trace_spans

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SEGMENT = ["segment_mib", "allocated_mib", "largest_free_mib", "segments"]
_SHOWN = 12  # rows of a comparison, the last one included


def operators(run: Run, strategy: str, base: str, **setting: Any) -> pd.DataFrame:
    """Return the kernels of `strategy` beside those of `base`, the largest difference first, ≤ 12 rows.

    Columns: operator, family, calls, base_calls, calls_difference, total_us, base_total_us, difference_us: means over
    ranks, per step; both at `setting`, or at the largest number of ranks that both have. The last row, "all others",
    completes the totals. A kernel that only one side lists counts as 0 on the other, where it took less than the
    least listed one and is among the others.
    """
    columns = ["strategy", "ranks", "point", "operator", "family", "calls", "total_us"]
    rows = at_setting(run.entries("operator", columns), setting)
    sides = [rows[rows["strategy"] == name] for name in (strategy, base)]
    common = set.intersection(*(set(side["ranks"]) for side in sides))
    if not common:
        profiled = rows[["strategy", "ranks"]].drop_duplicates().to_dict("split", index=False)["data"]
        raise ValueError(f"{strategy} and {base} were not profiled on equally many ranks; known are {profiled}")
    compared, base_means = (_mean(side[side["ranks"] == max(common)]) for side in sides)
    table = compared.join(base_means.add_prefix("base_"), how="outer").fillna(0.0).reset_index()
    table["calls_difference"] = table["calls"] - table["base_calls"]
    table["difference_us"] = table["total_us"] - table["base_total_us"]
    table = table[
        ["operator", "family", "calls", "base_calls", "calls_difference", "total_us", "base_total_us", "difference_us"]
    ]
    table = table.sort_values("difference_us", key=lambda us: -us.abs(), kind="stable", ignore_index=True)
    named = table["operator"] != "other"
    shown = table[named].head(_SHOWN - 1)
    others = table.drop(shown.index).sum(numeric_only=True)
    rest = pd.DataFrame([{"operator": "all others", "family": "other", **others}])
    table = pd.concat([shown, rest], ignore_index=True)
    return of_run(table, run, strategy=strategy, base=base, ranks=int(max(common)))


def memory_timeline(run: Run, **setting: Any) -> pd.DataFrame:
    """Return the moments of one rank's memory (MOMENT), rank 0 of the first point that fits `setting`.

    Empty where the run had no GPU. Fact: `setting`, in words.
    """
    return _of_one(run, "memory timeline", MOMENT, setting)


def segments(run: Run, **setting: Any) -> pd.DataFrame:
    """Return the allocator's segments (_SEGMENT) on one rank at the end of the last backward, largest first.

    `segments` is 1, or how many small ones the last row sums. Facts: `setting`, in words; `unused_share`, of all that
    is reserved (nan where there is none).
    """
    table = _of_one(run, "segment", _SEGMENT, setting)
    reserved = table["segment_mib"].sum()
    return made_from(
        table, table, unused_share=1 - table["allocated_mib"].sum() / reserved if reserved else float("nan")
    )


def _mean(rows: pd.DataFrame) -> pd.DataFrame:
    """Return calls and total_us of each kernel, averaged over ranks and points."""
    measured = len(rows[["point", "rank"]].drop_duplicates())
    return rows.groupby(["operator", "family"])[["calls", "total_us"]].sum() / measured


def _of_one(run: Run, entry: str, columns: list[str], setting: dict[str, Any]) -> pd.DataFrame:
    rows = at_setting(run.entries(entry, ["point", "rank", "strategy", "ranks", *columns]), setting)
    rows = rows[(rows["point"] == rows["point"].min()) & (rows["rank"] == 0)]
    words = point_in_words(rows.iloc[0]) if len(rows) else ""
    return of_run(rows[columns].reset_index(drop=True), run, setting=words)
