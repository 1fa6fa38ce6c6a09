"""Tables of lab 10 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, where
from labkit.story import units
from labkit.story.verdict import CPU_TIMES, NOT_COMPARED, one_minute, verdict
from labkit.story.words import listed, resolved
from lessons.ddp_from_scratch import tables
from lessons.ddp_from_scratch.theory import NAMES

if TYPE_CHECKING:
    from labkit.engine.run import Run

_AFTER = {"overlapped": "naive", "bucketed": "flat"}  # sends during backward: sends as large messages after it
_Pair = tuple[pd.DataFrame, pd.DataFrame]


def all_right(cases: pd.DataFrame) -> Markdown:
    """Say whether all classes are right in every case; takes `cases`."""
    shown = cases.assign(error=cases["error"].map("{:.0e}".format), tolerance=cases["tolerance"].map("{:.0e}".format))
    shown["right"] = shown["right"].map({True: "✔", False: "✘"})
    wrong = cases.loc[~cases["right"].astype(bool), "case"]
    if len(wrong):
        return verdict(f"✘ **Not as one process: {listed(wrong)}.**", shown, summary="Every case")
    return verdict(f"✔ **All classes do as one process does, in all {len(cases)} cases.**", shown, summary="Every case")


def what_is_hidden(*runs: _Pair) -> Markdown:
    """Say how much backward hides, each class beside its like that sends afterwards.

    Takes `implementations` and `costs`, of this run first, as a pair, and then of the recorded one.
    """
    return verdict(
        _compared(runs, _said_of_hiding), _both(runs).dropna(axis="columns", how="all"), summary="Every class"
    )


def _compared(runs: Sequence[_Pair], say: Callable[[pd.DataFrame, pd.DataFrame], str]) -> str:
    """Return what `say` says of this run, the first; of the last one, where this one ran on CPUs."""
    on_cpus = fact(runs[0][0], "on_cpu")
    judged = runs[-1] if on_cpus else runs[0]
    tail = f" {CPU_TIMES}" if on_cpus else ""
    return f"{where(judged[0]).split(',')[0]}: {say(*judged)}{tail}"


def _both(runs: Sequence[_Pair]) -> pd.DataFrame:
    """Return the second tables of the pairs, one below the other, with a column that says whose run it is."""
    shown = pd.concat([shown for _, shown in runs], keys=[where(table) for table, _ in runs], names=["run"])
    return shown.reset_index("run")


def _said_of_hiding(table: pd.DataFrame, costs: pd.DataFrame) -> str:
    rows = table[table["status"] == "ok"].drop_duplicates("strategy").set_index("strategy")
    pairs = [(name, after) for name, after in _AFTER.items() if {name, after} <= {*rows.index}]
    if not pairs or not {"none", "naive"} <= {*rows.index}:
        return "this run lacks naive, a step that sends nothing, or a class that sends during backward."
    naive = rows.loc["naive"]
    if naive["longer_ms"] <= naive["spread_longer_ms"]:
        longer = [_said_longer(rows, *pair) for pair in pairs if _gains(rows, *reversed(pair))]
        tail = f" {listed(longer)}, beyond noise; why, it cannot say either." if longer else ""
        return f"naive adds no time beyond noise, so **this run cannot say how much backward hides.**{tail}"
    added = f"naive adds {units.number(naive['longer_ms'], 2)} ms"
    if best := _most_hidden(rows):
        row, after = rows.loc[best], rows.loc[_AFTER[best]]
        share = units.percent((after["step_ms"] - row["step_ms"]) / after["longer_ms"])
        whose = "it" if after.name == "naive" else f"what *{NAMES[str(after.name)]}* adds"
        sentence = f"**{added}; backward hides {share} of {whose}**, with the class *{NAMES[best]}*."
        if (longer := row["backward_ms"] - rows.loc["none", "backward_ms"]) > row["spread_longer_ms"]:
            grown = units.number(longer, 2)
            sentence += f" Backward takes {grown} ms longer while it sends; the formula counts only its calls."
        others = [pair for pair in pairs if pair[0] != best and not _gains(rows, *pair)]
        return " ".join([sentence, *(_said_no_gain(rows, *pair) for pair in others)])
    sentence = f"{added}. **Backward hides nothing beyond noise.**"
    if "flat" in rows.index and _apart(naive, rows.loc["flat"]) and rows.loc["flat", "step_ms"] < naive["step_ms"]:
        saved = units.number(naive["step_ms"] - rows.loc["flat", "step_ms"], 2)
        sentence += f" Fewer calls save: *flat*, which hides nothing, is {saved} ms shorter."
    return sentence


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


def _said_no_gain(rows: pd.DataFrame, name: str, after: str) -> str:
    if _gains(rows, after, name):
        return f"*{NAMES[name]}* takes longer than *{NAMES[after]}*, beyond noise."
    return f"*{NAMES[name]}* hides nothing beyond noise."


def _said_longer(rows: pd.DataFrame, name: str, after: str) -> str:
    longer = units.number(rows.loc[name, "step_ms"] - rows.loc[after, "step_ms"], 2)
    return f"*{NAMES[name]}* takes {longer} ms longer than *{NAMES[after]}*"


def _apart(row: pd.Series, other: pd.Series) -> bool:
    return resolved(row["step_ms"], other["step_ms"], row["spread_step_ms"], other["spread_step_ms"])


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


def best_size(*runs: _Pair) -> Markdown:
    """Say which mean sizes are fastest, and whether the formula's best is among them; takes `buckets`, `overhead`.

    Of both this run comes first, as a pair, and then the recorded one.
    """
    columns = ["run", "overhead_us", "gb_per_s", "limit_gb_per_s", "residual", "optimum_mib"]
    columns += ["tied_from_mib", "tied_to_mib"]
    return verdict(_compared(runs, _said_of_sizes), _both(runs)[columns].round(2))


def _said_of_sizes(table: pd.DataFrame, fit: pd.DataFrame) -> str:
    rows = table[(table["strategy"] == "bucketed") & (table["status"] == "ok")]
    if rows.empty or fit.empty:
        return "too few bucket sizes were measured."
    line, span = fit.iloc[0], _span(fit)
    if _all_tied(table, fit):
        return f"**no size from {span} is fastest beyond noise**: this sweep does not test the formula."
    fastest = f"**fastest within noise: {span}**"
    if line["limit_gb_per_s"] < line["gb_per_s"] < math.inf:
        limit = units.number(line["limit_gb_per_s"], 3)
        return f"{fastest}. The formula finds no best size: its w is above the links' {limit} GB/s."
    if pd.isna(line["optimum_mib"]):
        return f"{fastest}. The formula finds no best size: it lacks one of its costs."
    below = rows["mean_mib"][rows["mean_mib"] < line["tied_from_mib"]].max()
    above = rows["mean_mib"][rows["mean_mib"] > line["tied_to_mib"]].min()
    outside = line["optimum_mib"] <= below or line["optimum_mib"] >= above
    among = "**not among them**" if outside else "among them"
    return f"{fastest}. The formula's best, {units.number(line['optimum_mib'], 2)}, is {among}."


def _all_tied(table: pd.DataFrame, fit: pd.DataFrame) -> bool:
    """Return whether both the smallest and the largest measured size are as fast as the fastest, within noise."""
    sizes = table.loc[(table["strategy"] == "bucketed") & (table["status"] == "ok"), "mean_mib"]
    ends = fit[["tied_from_mib", "tied_to_mib"]].iloc[0].tolist()
    return len(sizes) > 1 and ends == [sizes.min(), sizes.max()]


def _span(fit: pd.DataFrame) -> str:
    """Return the mean sizes that differ from the fastest by no more than noise: "23 to 3 811 MiB"."""
    least, most = (units.number(fit[name].iloc[0], 2) for name in ("tied_from_mib", "tied_to_mib"))
    return f"{least} to {most} MiB" if least != most else f"{least} MiB"


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _hidden(runs: Mapping[str, Run]) -> str | None:
    run = runs.get("report_128", runs["implementations"])  # the recorded steps with less noise
    table = tables.implementations(run)
    if fact(table, "on_cpu"):
        return NOT_COMPARED
    rows = table.drop_duplicates("strategy").set_index("strategy")
    if not {*_AFTER, *_AFTER.values()} <= {*rows.index}:
        return None
    if not (best := _most_hidden(rows)):
        return "nothing hidden beyond noise"
    saved_ms = units.number(rows["step_ms"][_AFTER[best]] - rows["step_ms"][best], 2)
    return f"with {run.plan.sequence} positions a step becomes {saved_ms} ms shorter"


def _early(runs: Mapping[str, Run]) -> str:
    rows = tables.overlap(runs["implementations"]).drop_duplicates("strategy").set_index("strategy")
    bucketed = rows.loc["bucketed"]
    return f"{bucketed['before_last_gradient']} of {bucketed['collectives']} buckets leave before the last gradient"


def _size(runs: Mapping[str, Run]) -> str | None:
    fit = tables.overhead(runs["buckets"])
    if fact(fit, "on_cpu"):
        return NOT_COMPARED
    if fit.empty:
        return None
    if _all_tied(tables.buckets(runs["buckets"]), fit):
        return f"no size from {_span(fit)} is fastest beyond noise"
    return f"fastest within noise: {_span(fit)}"


def _right(runs: Mapping[str, Run]) -> str:
    cases = tables.cases(runs["equality"])
    return f"{int(cases['right'].sum())} of {len(cases)} cases are right"


_RULES = {
    "Send while backward still computes": _hidden,
    "Prove the overlap by the order of calls": _early,
    "Between many calls and a late last bucket: √(s·w·o)": _size,
    "Compare every awkward case with one process": _right,
}
