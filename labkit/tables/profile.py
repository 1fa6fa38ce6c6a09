"""Rows of the profiler and of the allocator → where a step's time went, kernel by kernel, and its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import made_from, of_run

if TYPE_CHECKING:
    from labkit.engine.run import Run

PARTS = ["window_ms", "compute_ms", "communication_ms", "hidden_ms", "exposed_ms", "idle_ms"]
KERNELS = ["kernels", "communication_kernels"]
MOMENT = [
    "t_ms",
    "base_mib",
    "activations_mib",
    "gradients_mib",
    "optimizer_mib",
    "temporary_mib",
    "allocated_mib",
    "reserved_mib",
    "phase",
]
SEGMENT = ["segment_mib", "allocated_mib", "largest_free_mib", "segments"]
SHOWN = 12  # rows of a comparison, the last one included


def profile(run: Run) -> pd.DataFrame:
    """Return one row per strategy and number of ranks: what a step's time went into, in ms and as shares of it.

    Columns: strategy, ranks, PARTS, KERNELS, compute_share, exposed_share, idle_share and overlap, the hidden share of
    communication (nan without any). All are means over ranks and seeds, so that compute, exposed and idle add up to
    the window; a kernel of NCCL that waits for the other ranks' counts with its waiting. Fact: `idlest`, per row the
    rank whose GPU idles for the largest share of its window, as (strategy, ranks, rank, idle_ms, window_ms).
    """
    rows = _rows(run, "profile", ["strategy", "ranks", "rank", *PARTS, *KERNELS])
    table = rows.groupby(["strategy", "ranks"], sort=False)[[*PARTS, *KERNELS]].mean().reset_index()
    for part in ("compute", "exposed", "idle"):
        table[f"{part}_share"] = table[f"{part}_ms"] / table["window_ms"]
    table["overlap"] = (table["hidden_ms"] / table["communication_ms"]).where(table["communication_ms"] > 0)
    return of_run(table, run, idlest=_idlest(rows))


def _idlest(rows: pd.DataFrame) -> list[tuple[str, int, int, float, float]]:
    """Return per strategy and number of ranks the rank that idles most: an idle GPU waits for its own host."""
    by_rank = rows.groupby(["strategy", "ranks", "rank"], sort=False)[["idle_ms", "window_ms"]].mean().reset_index()
    share = by_rank["idle_ms"] / by_rank["window_ms"]
    most = share.groupby([by_rank["strategy"], by_rank["ranks"]], sort=False).idxmax().dropna()
    return [tuple(row) for row in by_rank.loc[most].itertuples(index=False)]


def operators(run: Run, strategy: str, base: str, **setting: Any) -> pd.DataFrame:
    """Return the kernels of `strategy` beside those of `base`, the largest difference first, ≤ 12 rows.

    Columns: operator, family, calls, base_calls, calls_difference, total_us, base_total_us, difference_us: means over
    ranks, per step; both at `setting`, or at the largest number of ranks that both have. The last row, "all others",
    completes the totals. A kernel that only one side lists counts as 0 on the other, where it took less than the
    least listed one and is among the others.
    """
    rows = _rows(run, "operator", ["strategy", "ranks", "point", "operator", "family", "calls", "total_us"], **setting)
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
    shown = table[named].head(SHOWN - 1)
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
    """Return the allocator's segments (SEGMENT) on one rank at the end of the last backward, largest first.

    `segments` is 1, or how many small ones the last row sums. Facts: `setting`, in words; `unused_share`, of all that
    is reserved (nan where there is none).
    """
    table = _of_one(run, "segment", SEGMENT, setting)
    reserved = table["segment_mib"].sum()
    return made_from(
        table, table, unused_share=1 - table["allocated_mib"].sum() / reserved if reserved else float("nan")
    )


def trace_spans(run: Run, strategy: str, **setting: Any) -> pd.DataFrame:
    """Return the spans of a profiled step: rank, span (compute, copy, communicate), collective, start_ms, end_ms.

    Time counts from the first rank's first span. Of several points, the one with most ranks and the first seed. Raises
    ValueError, naming what was traced, where the strategy was not.
    """
    spans = run.spans.reindex(columns=list(dict.fromkeys([*run.spans, "strategy", "ranks", "collective"])))
    timeline = _fitting(spans, setting | {"strategy": strategy})
    if timeline.empty:
        raise ValueError(f"{strategy} was not traced; traced were {sorted(spans['strategy'].dropna().unique())}")
    timeline = timeline[timeline["ranks"] == timeline["ranks"].max()]
    timeline = timeline[timeline["point"] == timeline["point"].min()]
    table = timeline[["rank", "span", "collective"]].reset_index(drop=True)
    zero_us = timeline["start_us"].min()
    for edge in ("start", "end"):
        table[f"{edge}_ms"] = ((timeline[f"{edge}_us"] - zero_us) / 1e3).to_numpy()
    return of_run(table, run, strategy=strategy, ranks=int(timeline["ranks"].iloc[0]), setting=_words(timeline.iloc[0]))


def _rows(run: Run, entry: str, columns: list[str], **setting: Any) -> pd.DataFrame:
    """Return the rows of one kind; without any, still with these columns."""
    rows = run.rows
    rows = rows.reindex(columns=list(dict.fromkeys([*rows, "entry", *columns])))
    return _fitting(rows, setting | {"entry": entry})


def _fitting(rows: pd.DataFrame, setting: dict[str, Any]) -> pd.DataFrame:
    for knob, value in setting.items():
        rows = rows[rows[knob] == value]
    return rows


def _mean(rows: pd.DataFrame) -> pd.DataFrame:
    """Return calls and total_us of each kernel, averaged over ranks and points."""
    measured = len(rows[["point", "rank"]].drop_duplicates())
    return rows.groupby(["operator", "family"])[["calls", "total_us"]].sum() / measured


def _of_one(run: Run, entry: str, columns: list[str], setting: dict[str, Any]) -> pd.DataFrame:
    rows = _rows(run, entry, ["point", "rank", "strategy", "ranks", *columns], **setting)
    rows = rows[(rows["point"] == rows["point"].min()) & (rows["rank"] == 0)]
    words = _words(rows.iloc[0]) if len(rows) else ""
    return of_run(rows[columns].reset_index(drop=True), run, setting=words)


def _words(row: pd.Series) -> str:
    return f"{row['strategy']}, {int(row['ranks'])} {'rank' if row['ranks'] == 1 else 'ranks'}"
