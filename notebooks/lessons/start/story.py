"""Tables of lab 00 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, sources
from labkit.repository import REPOSITORY
from labkit.story import units
from labkit.story.verdict import one_minute, verdict
from labkit.story.words import as_table, listed
from lessons.start import tables

_MOVE, _COMPUTE = "move 1 GB: host → GPU", "compute 1 TFLOP: bfloat16"
_WAYS = {"first": "the notebook's first `launch()`", "torchrun": "bare `torchrun`", "launch": "a later `launch()`"}
# of a dumped stack, innermost frame first: what lies below the worker's own frames
_LAUNCHERS_FRAMES = re.compile(r"^( +File .* in run_rank\n)(?: +File .*\n)+", re.MULTILINE)
_FIRST_IS_SLOW = 3  # times a later sum: what the first one must take to be called slow


def while_it_moves(table: pd.DataFrame) -> Markdown:
    """Say how much a GPU could compute while a gigabyte comes in from the host; takes `best_times`."""
    least = table.set_index("what")["least_ms"]
    if not {_MOVE, _COMPUTE} <= {*least.index}:
        return verdict("No datasheet of this GPU is at hand that has both rates.")
    work = units.number(least[_MOVE] / least[_COMPUTE], 2)
    return verdict(f"**While 1 GB comes in from the host, the GPU could do {work} TFLOP in bfloat16.**")


def all_there(table: pd.DataFrame) -> Markdown:
    """Say whether every rank is there, on a device of its own, and added up right; takes `ranks`."""
    if len(table) == 1:
        return verdict("One rank answered. It has no other rank to add up with: two GPUs would show more.")
    kind, column = ("GPU", "gpu") if "gpu" in table else ("process", "pid")
    wrong = table.loc[~table["sum_is_right"].astype(bool), "rank"]
    faults = [
        *[
            f"some ranks share a {name}"
            for name, of in ((kind, column), ("process", "pid"))
            if table[of].duplicated().any()
        ],
        *[f"rank {rank} got a wrong sum: do not trust this node's links" for rank in wrong],
    ]
    if faults:
        return verdict(f"✘ **{'; '.join(dict.fromkeys(faults))}.**")
    return verdict(f"✔ **{len(table)} ranks answered. Each has a {kind} of its own and got the right sum.**")


def first_sum(sums: pd.DataFrame) -> Markdown:
    """Say what the first sum costs beside a later one; takes `sums`."""
    first, later = sums["seconds"].iloc[0], sums["seconds"].iloc[1:].median()
    took = f"The first sum took {units.seconds(first)}, a later one {units.seconds(later)}"
    if first <= sums["seconds"].iloc[1:].max():
        return verdict(f"{took}: no slower than some later ones.")
    if first <= _FIRST_IS_SLOW * later:
        return verdict(f"{took}: the first costs little more here.")
    return verdict(f"**{took}.**")


def first_over_later(sums: pd.DataFrame) -> float:
    """Return how many times the median of the later sums the first one took."""
    return float(sums["seconds"].iloc[0] / sums["seconds"].iloc[1:].median())


def longest_part(startup: pd.DataFrame) -> Markdown:
    """Say when the ranks had met, and what took longest until then; takes `startup`."""
    table = startup[startup["part"] != tables.FIRST_SUM]
    parts = table.groupby("part", sort=False)["seconds"].max()
    total = units.seconds(table["end_s"].max())
    return verdict(
        f"Before the first sum {total} pass; the longest part: **{parts.idxmax()}, {units.seconds(parts.max())}**."
    )


def sweep_saves(costs: pd.DataFrame) -> Markdown:
    """Say what a sweep of many points costs beside one point; takes `launch_costs`."""
    points, seconds = fact(costs, "points"), costs.set_index("way")["seconds"]
    times = units.times(seconds["sweep"] / seconds["launch"])
    shown = pd.DataFrame(
        {
            sources(costs): costs["way"].map(_WAYS | {"sweep": f"`launch()` of {points} points"}),
            "call to return, s": costs["seconds"],
            "± s": costs["spread_seconds"],
            "start-up, s": costs["startup_seconds"],
            "then to the first row, s": costs["first_row_seconds"] - costs["startup_seconds"],
            "after it, s": costs["seconds"] - costs["first_row_seconds"],
            "time over bare `torchrun`'s": costs["over_torchrun"],
        }
    )
    sentence = f"**A launch of {points} points takes {times} as long as one of a single point.**"
    if seconds["sweep"] >= points / 2 * seconds["launch"]:
        sentence = f"A launch of {points} points takes {times} as long as one point: measuring takes longer."
    return Markdown(f"{as_table(shown)}\n\n{verdict(sentence).data}")


def show_error(error: Exception) -> Markdown:
    """Show the text of the error, as the cell would have without the `try`; of a stack not the launcher's frames."""
    told = str(error).replace("```", "").replace(f"{REPOSITORY}/", "")
    text = _LAUNCHERS_FRAMES.sub(r"\1  … the launcher's frames\n", told)
    return Markdown(f"```text\n{type(error).__name__}: {text}\n```")


def nothing_left(table: pd.DataFrame) -> Markdown:
    """Say whether every failed run named the rank that failed, kept its rows and left no process; takes `failures`."""
    faults = {
        "another rank is blamed": table["blamed_rank"] != table["failed_rank"],
        "no row is kept": table["rows_kept"] == 0,
        "processes are left": table["processes_left"] > 0,
    }
    sentences = [
        f"{fault} where the rank {listed(table.loc[rows, 'the_rank'])}" for fault, rows in faults.items() if rows.any()
    ]
    if sentences:
        return verdict(f"✘ **{'; '.join(sentences)}.**")
    return verdict(f"✔ **All {len(table)} errors name the rank that failed. Rows are kept, and no process is left.**")


def in_one_minute(here: Mapping[str, Any], recorded: Mapping[str, Any]) -> Markdown:
    """Return the lesson's rules, each with what it is worth here and in the recorded runs.

    Both hold `hello`, a run; `cost`, a run of a LaunchCost, and `failures`, a table, where they were measured.
    """
    return one_minute(_RULES, here=here, recorded=recorded)


def _least(measured: Mapping[str, Any]) -> str | None:
    least = tables.best_times(measured["hello"].node).set_index("what")["least_ms"]
    return f"by datasheet, 1 GB from the host: {units.number(least[_MOVE])} ms or more" if _MOVE in least else None


def _first(measured: Mapping[str, Any]) -> str:
    seconds = tables.sums(measured["hello"])["seconds"]
    if seconds.iloc[0] <= seconds.iloc[1:].max():
        return "it was no slower than some later ones"
    return f"it took {units.times(first_over_later(tables.sums(measured['hello'])))} a later one"


def _sweep(measured: Mapping[str, Any]) -> str | None:
    if "cost" not in measured:
        return None
    costs = tables.launch_costs(measured["cost"])
    seconds = costs.set_index("way")["seconds"]
    return f"{fact(costs, 'points')} points take {units.times(seconds['sweep'] / seconds['launch'])} one point's time"


def _left(measured: Mapping[str, Any]) -> str | None:
    if "failures" not in measured:
        return None
    table = measured["failures"]
    named = int((table["blamed_rank"] == table["failed_rank"]).sum())
    return f"{named} of {len(table)} causes named, {int(table['processes_left'].sum())} processes left"


_RULES = {
    "No time is shorter than work ÷ the datasheet's rate": _least,
    "Never time the first": _first,
    "Measure all points of a sweep in one launch": _sweep,
    "A failure names its rank, keeps its rows, leaves nothing": _left,
}
