"""Tables of lab 10 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.story import units
from labkit.story.verdict import one_minute, verdict
from labkit.story.words import listed, resolved
from lessons.ddp_from_scratch import tables
from lessons.ddp_from_scratch.theory import NAMES

if TYPE_CHECKING:
    from labkit.engine.run import Run

_AFTER = {"overlapped": "naive", "bucketed": "flat"}  # sends during backward: sends as large messages after it


def all_right(cases: pd.DataFrame) -> Markdown:
    """Say whether all classes are right in every case; takes `cases`."""
    shown = cases.assign(error=cases["error"].map("{:.0e}".format), tolerance=cases["tolerance"].map("{:.0e}".format))
    shown["right"] = shown["right"].map({True: "✔", False: "✘"})
    wrong = cases.loc[~cases["right"].astype(bool), "case"]
    if len(wrong):
        return verdict(f"✘ **Not as one process: {listed(wrong)}.**", shown, summary="Every case")
    return verdict(f"✔ **All classes do as one process does, in all {len(cases)} cases.**", shown, summary="Every case")


def what_is_hidden(table: pd.DataFrame, costs: pd.DataFrame) -> Markdown:
    """Say how much backward hides, each class beside the one with as many calls; takes `implementations`, `costs`."""
    rows = table[table["status"] == "ok"].drop_duplicates("strategy").set_index("strategy")
    shown, summary = costs.dropna(axis="columns", how="all"), "Every class"
    pairs = [(name, after) for name, after in _AFTER.items() if {name, after} <= {*rows.index}]
    if not pairs or not {"none", "naive"} <= {*rows.index}:
        return verdict("This run lacks naive, a step that sends nothing, or a class that sends during backward.", shown)
    naive = rows.loc["naive"]
    if naive["longer_ms"] <= naive["spread_longer_ms"]:
        return verdict("Naive adds no time beyond noise, so **this run cannot say how much backward hides.**", shown)
    added = f"Naive adds {units.number(naive['longer_ms'], 2)} ms"
    if best := _most_hidden(rows):
        after = rows.loc[_AFTER[best]]
        share = units.percent((after["step_ms"] - rows.loc[best, "step_ms"]) / after["longer_ms"])
        whose = "it" if after.name == "naive" else f"what *{NAMES[str(after.name)]}* adds"
        sentence = f"**{added}; backward hides {share} of {whose}**, with the class *{NAMES[best]}*."
        others = [f"*{NAMES[name]}*" for name, after in pairs if name != best and not _gains(rows, name, after)]
        sentence += f" {listed(others)} hides nothing beyond noise." if others else ""
        return verdict(sentence, shown, summary=summary)
    sentence = f"{added}. **Backward hides nothing beyond noise.**"
    if "flat" in rows.index and _apart(naive, rows.loc["flat"]) and rows.loc["flat", "step_ms"] < naive["step_ms"]:
        saved = units.number(naive["step_ms"] - rows.loc["flat", "step_ms"], 2)
        sentence += f" Fewer calls save: *flat*, which hides nothing, is {saved} ms shorter."
    return verdict(sentence, shown, summary=summary)


def _most_hidden(rows: pd.DataFrame) -> str | None:
    """Return which class gains most, beyond noise, over the one that makes as many calls after backward."""
    gains = {
        name: rows.loc[after, "step_ms"] - rows.loc[name, "step_ms"]
        for name, after in _AFTER.items()
        if {name, after} <= {*rows.index} and _apart(rows.loc[after], rows.loc[name])
    }
    best = max(gains, key=lambda name: gains[name], default=None)
    return best if best and gains[best] > 0 else None


def _gains(rows: pd.DataFrame, name: str, after: str) -> bool:
    return _apart(rows.loc[after], rows.loc[name]) and rows.loc[name, "step_ms"] < rows.loc[after, "step_ms"]


def _apart(row: pd.Series, other: pd.Series) -> bool:
    return resolved(row["step_ms"], other["step_ms"], row["spread_step_ms"], other["spread_step_ms"])


def beside_torch(table: pd.DataFrame) -> Markdown:
    """Say how long the bucketed step is beside that of torch's DDP; takes `implementations` or `buckets`."""
    rows = table[(table["strategy"] == "bucketed") & table["over_ddp"].notna()]
    if rows.empty:
        return verdict("This run has nothing to compare with torch's DDP.")
    best = rows.loc[rows["over_ddp"].idxmin()]
    ratio, spread = best["over_ddp"], best["spread_over_ddp"]
    if abs(ratio - 1) <= spread:
        return verdict("**Ours and torch's DDP take the same time within noise.**")
    return verdict(f"**Ours takes {ratio:.2f} × the step of torch's DDP**, ± {units.number(spread, 2)}.")


def sent_early(table: pd.DataFrame) -> Markdown:
    """Say which classes call before the last gradient is there, and whether calls are theory's; takes `overlap`."""
    rows = table[table["strategy"] != "none"].drop_duplicates("strategy").set_index("strategy")
    early = [NAMES[name] for name in rows.index if rows["before_last_gradient"][name] > 0]
    late = [NAMES[name] for name in rows.index if rows["before_last_gradient"][name] == 0]
    names = {"collectives": "calls", "before_last_gradient": "before the last gradient", "expected": "expected calls"}
    names |= {"largest_mib": "largest, MiB", "last_mib": "last, MiB"}
    shown = rows[list(names)].rename(columns=names, index=NAMES).round(2).reset_index()
    unequal = [NAMES[name] for name in rows.index if not rows["equal"][name]]
    sentence = f"**Before the last gradient send: {listed(early)}. After it: {listed(late)}.**"
    tail = f"✘ Calls that theory does not expect: {listed(unequal)}." if unequal else "Every call is as theory expects."
    return verdict(f"{sentence} {tail}", shown, summary="Every call")


def best_size(table: pd.DataFrame, fit: pd.DataFrame) -> Markdown:
    """Say which mean sizes are fastest, and whether the formula's best is among them; takes `buckets`, `overhead`."""
    rows = table[(table["strategy"] == "bucketed") & (table["status"] == "ok")]
    if rows.empty or fit.empty:
        return verdict("Too few bucket sizes were measured.")
    line = fit.iloc[0]
    shown = fit[["overhead_us", "gb_per_s", "residual", "optimum_mib", "tied_from_mib", "tied_to_mib"]].round(2)
    least, most = (units.number(line[name], 2) for name in ("tied_from_mib", "tied_to_mib"))
    span = f"{least} to {most}" if least != most else least
    if not line["identified"]:
        small, large = line["tied_from_mib"] <= rows["mean_mib"].min(), line["tied_to_mib"] >= rows["mean_mib"].max()
        if small and large:
            return verdict("**No size is best beyond noise**: smallest and largest are among the fastest.", shown)
        end = "the largest is among them" if large else "the smallest is among them"
        return verdict(f"**Fastest: {span} MiB, and {end}**: no best size lies between.", shown)
    if pd.isna(line["optimum_mib"]):
        return verdict(f"**Fastest: {span} MiB.** The formula finds no best size: it lacks one of its costs.", shown)
    below = rows["mean_mib"][rows["mean_mib"] < line["tied_from_mib"]].max()
    above = rows["mean_mib"][rows["mean_mib"] > line["tied_to_mib"]].min()
    among = "among them" if below < line["optimum_mib"] < above else "**not among them**"
    return verdict(
        f"**Fastest: {span} MiB.** The formula's best, {units.number(line['optimum_mib'], 2)}, is {among}.", shown
    )


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _hidden(runs: Mapping[str, Run]) -> str | None:
    run = runs.get("report_128", runs["implementations"])  # the recorded steps with less noise
    rows = tables.implementations(run).drop_duplicates("strategy").set_index("strategy")
    if not {*_AFTER, *_AFTER.values()} <= {*rows.index}:
        return None
    if not (best := _most_hidden(rows)):
        return "nothing hidden beyond noise"
    return f"a step becomes {units.number(rows['step_ms'][_AFTER[best]] - rows['step_ms'][best], 2)} ms shorter"


def _early(runs: Mapping[str, Run]) -> str:
    rows = tables.overlap(runs["implementations"]).drop_duplicates("strategy").set_index("strategy")
    bucketed = rows.loc["bucketed"]
    return f"{bucketed['before_last_gradient']} of {bucketed['collectives']} buckets leave before the last gradient"


def _size(runs: Mapping[str, Run]) -> str | None:
    fit = tables.overhead(runs["buckets"])
    if fit.empty or not fit["identified"].iloc[0]:
        return "no best size between smallest and largest"
    return f"{units.number(fit['tied_from_mib'].iloc[0], 2)} to {units.number(fit['tied_to_mib'].iloc[0], 2)} MiB"


def _right(runs: Mapping[str, Run]) -> str:
    cases = tables.cases(runs["equality"])
    return f"{int(cases['right'].sum())} of {len(cases)} cases are right"


_RULES = {
    "Send while backward still computes": _hidden,
    "Prove the overlap by the order of calls": _early,
    "Between few calls and little left to send: √(s·w·o)": _size,
    "Compare every awkward case with one process": _right,
}
