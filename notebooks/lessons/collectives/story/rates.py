"""Bandwidths and latencies → sentences: what a large message reaches of the links, and what a small one costs."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, resolved, say
from lessons.collectives.theory import bus_factor

NAMES = {"nccl": "NCCL", "gloo": "gloo"}
COLLECTIVE, CLOCK = "all-reduce", "in flight"
CLOCKS = {"in flight": "in a row", "one call": "alone and waited for", "captured": "replayed from a CUDA graph"}
_FLAT = 1.25  # times as long: the size hardly matters
_FEW = 3  # names that are listed; more are counted


@about_tables
def explain_bandwidth(table: pd.DataFrame, fits: pd.DataFrame) -> Markdown:
    """Say what the largest messages reach of the links, who is above a ring's bound and why, where the knee is.

    And whatever is wrong: values, or a bandwidth that the links do not allow.
    """
    rows = widest(table[table["clock"] == CLOCK])
    sentences = [_reached(backend_rows, backend) for backend, backend_rows in by_backend(rows)]
    return say(*sentences, _above(rows), _crossing(rows, fits), _wrong(table), small=fact(table, "small"))


@about_tables
def explain_latency(table: pd.DataFrame) -> Markdown:
    """Say what an all-reduce of the smallest message takes by each clock, how far size does not matter, and what the
    very first call took.
    """
    rows = widest(table)
    return paragraphs(
        [
            (
                _smallest(backend_rows, backend),
                _launching(backend_rows),
                _flat(backend_rows, backend),
                _first(backend_rows, backend),
            )
            for backend, backend_rows in by_backend(rows)
        ],
        small=fact(table, "small"),
    )


def paragraphs(sentences_of: list[tuple[str | None, ...]], *, small: bool) -> Markdown:
    """Return a paragraph for each of several lists of sentences."""
    return say("\n\n".join(str(say(*sentences).data) for sentences in sentences_of), small=small)


def widest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the timed rows with the most ranks of their backend."""
    rows = table.dropna(subset="median_us")
    return rows[rows["ranks"] == rows.groupby("backend")["ranks"].transform("max")]


def by_backend(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return (its name, its rows) for NCCL, then gloo, as far as they were measured."""
    return [
        (name, backend_rows) for backend, name in NAMES.items() if len(backend_rows := rows[rows["backend"] == backend])
    ]


def ends(values: pd.Series, form) -> str:
    """Return the least and the most in words, or the one value that both are."""
    least, most = form(values.min()), form(values.max())
    return least if least == most else f"{least} to {most}"


def us(value: float) -> str:
    """Return microseconds in the unit that fits."""
    return units.seconds(value / 1e6)


def _reached(backend_rows: pd.DataFrame, backend: str) -> str:
    largest = backend_rows[backend_rows["bytes"] == backend_rows["bytes"].max()]
    best, least = (largest.loc[getattr(largest["bus_gb_per_s"], pick)()] for pick in ("idxmax", "idxmin"))
    sentence = (
        f"**{backend}**, {best['ranks']} ranks, {units.size(best['bytes'])}: bus bandwidth from "
        f"{units.rate(least['bus_gb_per_s'])} ({least['collective']}) to {units.rate(best['bus_gb_per_s'])} "
        f"({best['collective']})"
    )
    shares = largest["share_of_limit"].dropna()
    return f"{sentence}, {ends(shares, units.percent)} of what the links allow." if len(shares) else f"{sentence}."


def _above(rows: pd.DataFrame) -> str | None:
    above = rows[rows["above_ring"].astype(bool)]
    if above.empty:
        return None
    best = above.loc[above["bus_gb_per_s"].idxmax()]
    ring = rows.loc[rows["collective"] != COLLECTIVE, "limit"].min()
    bound = f", the {units.rate(ring)} of a GPU's links" if pd.notna(ring) else ""
    return (
        f"{best['collective'].capitalize()}'s {units.rate(best['bus_gb_per_s'])} are **above a ring's bound**{bound}, "
        "and no error: the switch adds (NVLS), so each GPU sends fewer bytes than the ring that the definition credits."
    )


def _crossing(rows: pd.DataFrame, fits: pd.DataFrame) -> str | None:
    parts = []
    for backend, backend_rows in by_backend(rows):
        line = fits[
            (fits["backend"] == backend_rows["backend"].iloc[0]) & (fits["ranks"] == backend_rows["ranks"].max())
        ]
        measured_knees = line[line["knee_bytes"].between(backend_rows["bytes"].min(), backend_rows["bytes"].max())]
        if len(measured_knees):
            parts.append(f"at {ends(measured_knees['knee_bytes'], units.size)} for {backend}")
        elif len(line):
            parts.append(f"for {backend} at no size that was measured")
    return f"Latency and transfer take equally long {listed(parts)}, by the fitted lines." if parts else None


def _wrong(table: pd.DataFrame) -> str:
    failed = table[table["status"] != "ok"]
    impossible = table[table["verdict"] == "impossible"]
    if failed.empty and impossible.empty:
        return f"All {len(table)} points gave the right values, and none beats the links."
    parts = []
    for status, status_rows in failed.groupby("status", sort=False):
        parts.append(f"**{status}** in {len(status_rows)} of {len(table)} points ({_named(status_rows)})")
    if len(impossible):
        parts.append(f"**impossible** is the bandwidth of {len(impossible)} points ({_named(impossible)})")
    return f"{listed(parts)[0].upper()}{listed(parts)[1:]}."


def _named(rows: pd.DataFrame) -> str:
    names = list(dict.fromkeys(rows["collective"]))
    return listed(names if len(names) <= _FEW else [f"{len(names)} collectives"])


def _smallest(backend_rows: pd.DataFrame, backend: str) -> str:
    rows = backend_rows[backend_rows["bytes"] == backend_rows["bytes"].min()]
    all_reduces = rows[rows["collective"] == COLLECTIVE]
    times = listed(f"{us(row.median_us)} {CLOCKS[row.clock]}" for row in all_reduces.itertuples())
    ranks, size = all_reduces["ranks"].max(), units.size(all_reduces["bytes"].min())
    head = f"**{backend}**, {ranks} ranks, {size}: an all-reduce takes {times}"
    in_flight = rows[rows["clock"] == CLOCK]
    others = (
        f"; the other collectives, in a row, {ends(in_flight[in_flight['collective'] != COLLECTIVE]['median_us'], us)}"
    )
    link = all_reduces["limit"].dropna()
    if link.empty:
        return f"{head}{others}."
    moves = us(all_reduces["bytes"].min() / link.iloc[0] / 1e3)
    return f"{head}{others}. The links would move its bytes in {moves}: **the rest is latency.**"


def _launching(backend_rows: pd.DataFrame) -> str | None:
    """Say how much of the smallest all-reduce is the host's, where a CUDA graph shows the GPU's part."""
    rows = backend_rows[
        (backend_rows["bytes"] == backend_rows["bytes"].min()) & (backend_rows["collective"] == COLLECTIVE)
    ].set_index("clock")
    if not {"captured", CLOCK} <= set(rows.index):
        return None
    launched, replayed = rows.loc[CLOCK], rows.loc["captured"]
    if not resolved(launched["median_us"], replayed["median_us"], launched["spread_us"], replayed["spread_us"]):
        return "The time that the host needs to launch a call is within noise."
    gap = us(abs(launched["median_us"] - replayed["median_us"]))
    if launched["median_us"] > replayed["median_us"]:
        return f"Without the host to launch it, a call takes {gap} less: the GPU waits that long for Python and driver."
    return f"Replayed it takes {gap} **more**: the host does not limit here."


def _flat(backend_rows: pd.DataFrame, backend: str) -> str | None:
    """Say up to which size an all-reduce takes no longer than the smallest, and how much times scatter on the way."""
    rows = backend_rows[(backend_rows["collective"] == COLLECTIVE) & (backend_rows["clock"] == CLOCK)].sort_values(
        "bytes"
    )
    grown = (rows["median_us"] / rows["median_us"].iloc[0]).set_axis(rows["bytes"])
    last = grown.index[grown <= _FLAT].max()
    if last == grown.index[0]:
        return f"{backend}'s time grows with the size from the first step on."
    on_the_way = grown[grown.index <= last]
    scatter = on_the_way.max() / on_the_way.min()
    sentence = (
        f"Up to {units.size(last)} {backend}'s time hardly depends on the size: {units.number(last / grown.index[0])} "
        f"times the bytes take {units.times(grown[last])} the time"
    )
    return f"{sentence}; on the way times scatter by {units.times(scatter)}." if scatter > _FLAT else f"{sentence}."


def _first(backend_rows: pd.DataFrame, backend: str) -> str | None:
    """Say what the first call of the smallest message, with which the measurement begins, took over of a later call."""
    rows = backend_rows[(backend_rows["collective"] == COLLECTIVE) & (backend_rows["clock"] == CLOCK)]
    if rows.empty:
        return None
    row = rows.loc[rows["bytes"].idxmin()]
    ratio = row["first_us"] / row["median_us"]
    if pd.isna(ratio):
        return None
    if ratio < 2:
        return f"{backend}'s very first call takes no more than {units.times(ratio)} of a later call."
    return (
        f"The very first call of {units.size(row['bytes'])} took {us(row['first_us'])}, {units.times(ratio)} "
        "of a later call: **keep start-up outside the clock.**"
    )


_SAME_BYTES = 0.01  # of the bytes: chunks differ by an element


@about_tables
def explain_ring(table: pd.DataFrame) -> Markdown:
    """Say whether our ring is right for every length and sends what the formula says, and what it costs in time."""
    return say(_right(table), _sent(table), *_timed(table), small=fact(table, "small"))


def _right(table: pd.DataFrame) -> str:
    wrong = table[table["status"] != "ok"]
    counts = listed(sorted(set(table["ranks"])))
    if wrong.empty:
        odd = (table["elements"] % table["ranks"] != 0).sum()
        return f"Our ring gives the right sums on {counts} ranks, {odd} of {len(table)} lengths not divisible by them."
    where = listed(f"length {units.count(row.elements)} on {row.ranks} ranks" for row in wrong.itertuples())
    return f"**Our ring is wrong** for {where}: {listed(dict.fromkeys(wrong['status']))}."


def _sent(table: pd.DataFrame) -> str:
    large = table[table["elements"] > 100 * table["ranks"]]  # in fewer, one element more is not small
    share = [bus_factor("all-reduce", ranks) for ranks in large["ranks"]]
    largest_error = (large["sent_bytes"] / (share * large["bytes"]) - 1).abs().max()
    if pd.isna(largest_error):
        return "No length was large enough to hold the bytes against the formula."
    if largest_error <= _SAME_BYTES:
        counts = listed(f"N = {ranks}" for ranks in sorted(set(large["ranks"])))
        return f"A rank sends 2(N − 1)/N of the message, as the formula says, for {counts}."
    return f"**What a rank sends differs from 2(N − 1)/N of the message by {units.percent(largest_error)}.**"


def _timed(table: pd.DataFrame) -> list[str]:
    """Say of the shortest and the longest message what ours takes, and of how many times the library's that is."""
    sentences = []
    for ranks, lengths in table.dropna(subset="times").groupby("ranks"):
        rows = [lengths.loc[lengths["elements"] == pick(lengths["elements"])].iloc[0] for pick in (min, max)]
        clear = [row for row in rows if _clear(row)]
        parts = [f"{units.times(row['times'])} the library's time for {units.size(row['bytes'])}" for row in clear]
        if vague := [units.size(row["bytes"]) for row in rows if not _clear(row)]:
            parts.append(f"for {listed(vague)} the library's time within noise")
        sentences.append(f"On {ranks} ranks it takes {listed(parts)}.")
    return sentences


def _clear(row: pd.Series) -> bool:
    return resolved(row["ours_us"], row["library_us"], row["spread_ours_us"], row["spread_library_us"])
