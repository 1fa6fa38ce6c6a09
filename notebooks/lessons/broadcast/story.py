"""Tables of lab 02 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import by_place, fact
from labkit.story import units
from labkit.story.verdict import one_minute, verdict
from labkit.story.words import listed, resolved
from labkit.theory.sizes import GIB
from lessons.broadcast import tables
from lessons.broadcast.theory import NAMES

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SAME = 1.10  # gains that differ by less count for the same
_NEAR = 0.10  # chunk counts whose time is within 10 % of the best one's


def ways_apart(table: pd.DataFrame) -> Markdown:
    """Say how many times as long the slowest way takes as the fastest."""
    seconds = _right(table)["seconds"]
    if len(seconds) < 2:
        return verdict("This run has fewer than two ways to compare.")
    return verdict(f"**The slowest way takes {units.times(seconds.max() / seconds.min())} as long as the fastest.**")


def _right(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["status"] == "ok") & (table["method"] != "links")]


def same_bytes(table: pd.DataFrame) -> Markdown:
    """Say by which functions every GPU's copy equals the source; takes `symptoms`."""
    names = {wrong: [] for wrong in (False, True)}
    for row in table.to_dict("records"):
        names[row["wrong_repeats"] > 0].append(f"*{row['function'].rpartition('.')[2]}*")
    if names[True]:
        return verdict(f"✘ Some GPU's copy differs from the source by {listed(names[True])}.")
    return verdict(f"✔ Every GPU's copy equals the source, by {listed(names[False])}.")


def fastest(table: pd.DataFrame) -> Markdown:
    """Say which method was fastest and how near the datasheet's limit, or which two are equal; and what failed."""
    best = _right(table).sort_values("seconds").drop_duplicates("method")
    if best.empty:
        return verdict("No method brought right copies to every GPU.")
    first, sentences = best.iloc[0], []
    rivals = [
        first,
        *itertools.takewhile(lambda row: not _differ(first, row), (row for _, row in best.iloc[1:].iterrows())),
    ]
    if len(rivals) > 1:
        names = [f"*{NAMES[row['method']]}*" for row in rivals]
        times = units.span((1e3 * row["seconds"] for row in rivals), units.number)
        sentences.append(f"**Equally fast within noise: {listed(names)}**, {times} ms.")
    else:
        limit = ""
        if first["least_seconds"] > 0:
            limit = f", {units.number(first['seconds'] / first['least_seconds'])} × the datasheet's least time"
        what = f"{NAMES[first['method']]}, from {first['memory']} memory"
        sentences.append(f"**Fastest: {what}**, {units.number(1e3 * first['seconds'])} ms{limit}.")
    if (table["verdict"] == "impossible").any():
        sentences.append("Some time beats the datasheet: do not believe it.")
    if wrong := dict.fromkeys(NAMES[method] for method in table.loc[table["status"] != "ok", "method"]):
        sentences.append(f"Wrong copies, left out: {listed(wrong)}.")
    if fact(table, "small"):
        sentences.append("CPU processes share one memory: they have no links to save.")
    return verdict(" ".join(sentences))


def _differ(row: pd.Series, other: pd.Series) -> bool:
    """Return whether two rows' times differ by more than their spreads together."""
    return resolved(row["seconds"], other["seconds"], row["spread_seconds"], other["spread_seconds"])


def memory_or_path(table: pd.DataFrame) -> Markdown:
    """Say what gains more: pinning what direct copies, or then the pipelined path; takes `ablation`."""
    rows = table.set_index("method").reindex(["direct", "pipelined"])
    pinning, path = rows.loc["direct", "pinning_gain"], rows.loc["pipelined", "path_gain"]
    if not (pinning > 0 and path > 0):  # NaN where a time is missing
        return verdict("**This run cannot separate the two causes**: it lacks one of the three times.")
    more = "Pinning gains more than the path" if pinning > path else "The path gains more than pinning"
    if max(pinning, path) <= _SAME * min(pinning, path):
        more = "Pinning and the path gain the same"
    gains = f"direct is {units.times(pinning)} as fast from pinned memory, and pipelined then {units.times(path)}"
    paths = table.set_index("method")["path_gain"]
    best = paths.idxmax()
    more_path = f" Of the paths, {NAMES[best]} gains most: {units.times(paths[best])}."
    return verdict(f"**{more}**: {gains} as fast as that.{more_path if paths[best] > _SAME * path else ''}")


def sizes_that_fit(recorded: pd.DataFrame) -> Markdown:
    """Say whether the size in the course's template fits each report's three times, with the sizes that do."""
    table = tables.fitting_sizes(recorded)
    template = tables.TEMPLATE_BYTES / GIB
    inside = table["least_gib"].lt(template).all() and table["most_gib"].gt(template).all()
    sentence = (
        f"**{units.number(template)} GiB {'fit' if inside else 'do not fit'} the times of both reports**: the course's "
        "public template broadcasts so much. It does not prove what the reports ran."
    )
    shown = table.set_axis(["report", "at least, GiB", "at most, GiB"], axis=1)
    return verdict(sentence, shown, summary="The sizes that fit")


def hidden(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say which share of the copies between GPUs is hidden, here and in the recorded run; takes two `timeline`s."""
    shares = [f"{units.percent(fact(table, 'hidden'))} {place}" for place, table in by_place(here, recorded).items()]
    return verdict(f"**Hidden of the time of copies between GPUs: {listed(shares)}.**")


def best_chunks(table: pd.DataFrame) -> Markdown:
    """Say for the fastest method which chunk counts are about as good as the best; takes `chunk_sweep`."""
    if table.empty:
        return verdict("No broadcast in chunks was measured.")
    method = table.loc[table["seconds"].idxmin(), "method"]
    rows = table[table["method"] == method].sort_values("chunks")
    low, high = middle(rows)
    every = (low, high) == (rows["chunks"].min(), rows["chunks"].max())
    if low == high:
        return verdict(
            f"For {NAMES[method]}, only **{low}** chunks come within {units.percent(_NEAR)} of the best time."
        )
    sentence = f"For {NAMES[method]}, **{low} to {high}** chunks take the same time within {units.percent(_NEAR)}"
    return verdict(f"{sentence}{': all counts that were run' if every else ''}.")


def middle(rows: pd.DataFrame) -> tuple[int, int]:
    """Return the least and the most chunks, around the best count, whose times are all near its own."""
    counts, near = rows["chunks"].tolist(), (rows["above_best"] <= _NEAR).tolist()
    low = high = rows["above_best"].tolist().index(rows["above_best"].min())
    while low > 0 and near[low - 1]:
        low -= 1
    while high < len(near) - 1 and near[high + 1]:
        high += 1
    return counts[low], counts[high]


def in_one_minute(run: Run, recorded: Run) -> Markdown:
    """Return the lesson's rules, each with what it is worth in this run and in the recorded one."""
    return one_minute(_RULES, here=run, recorded=recorded)


def _pinning(run: Run) -> str | None:
    gain = tables.ablation(tables.methods(run)).set_index("method")["pinning_gain"].get("direct")
    return f"direct is {units.times(gain)} as fast" if gain is not None and gain > 0 else "no GPU to pin for"


def _every_link(run: Run) -> str | None:
    rows = tables.chunk_sweep(tables.methods(run))
    rows = rows.loc[rows.groupby("method")["seconds"].idxmin()].set_index("method")
    if not {"pipelined", "scatter_all_gather"} <= {*rows.index}:
        return None
    one, all_links = rows.loc["pipelined"], rows.loc["scatter_all_gather"]
    noise = "" if _differ(one, all_links) else ", within noise"
    return f"{units.times(one['seconds'] / all_links['seconds'])} as fast as all through one link{noise}"


def _hiding(run: Run) -> str | None:
    return f"{units.percent(fact(tables.timeline(run, 'pipelined'), 'hidden'))} hidden"


def _chunks(run: Run) -> str | None:
    rows = tables.chunk_sweep(tables.methods(run))
    rows = rows[rows["method"] == "scatter_all_gather"].sort_values("chunks")
    if len(rows) < 3:
        return f"only {listed(rows['chunks'])} tried"
    low, high = middle(rows)
    return f"{low} to {high} chunks" if low < high else f"{low} chunks"


_RULES = {
    "Pin what a GPU pulls": _pinning,
    "Bring each byte over the host links once, a share through each": _every_link,
    "Send on while more arrives": _hiding,
    "Choose the middle of a broad range of chunks": _chunks,
}
