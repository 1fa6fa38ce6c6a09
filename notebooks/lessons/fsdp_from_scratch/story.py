"""Tables of lab 15 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, where
from labkit.story import units
from labkit.story.verdict import CPU_TIMES, NOT_COMPARED, one_minute, verdict
from labkit.story.words import listed, resolved
from lessons.fsdp_from_scratch import tables
from lessons.fsdp_from_scratch.theory import STRATEGIES, setting_name

if TYPE_CHECKING:
    from labkit.engine.run import Run


def what_stages_save(table: pd.DataFrame) -> Markdown:
    """Say what each stage saves and sends; takes `stages`."""
    last, ddp = table.iloc[-1], table.iloc[0]
    shown = table.rename(
        columns={"parameters": "parameters, GB", "gradients": "gradients, GB", "optimizer": "states, GB"}
    )
    shown = shown.rename(columns={"held": "held, GB", "sent": "sent a step, GB"}).drop(columns="saved").round(1)
    saved, sent = units.percent(last["saved"]), units.times(last["sent"] / ddp["sent"])
    sentence = (
        f"**{last['stage']} holds {saved} less than {ddp['stage']} between two steps, and sends {sent} as much.**"
    )
    return verdict(sentence, shown, summary="Every stage")


def all_right(cases: pd.DataFrame) -> Markdown:
    """Say whether the classes train as one process does in every case; takes `cases`."""
    shown = cases.assign(
        **{name: cases[name].map("{:.0e}".format).replace("0e+00", "0") for name in (*tables._ERRORS, "tolerance")}
    )
    shown["right"] = shown["right"].map({True: "✔", False: "✘"})
    shown.insert(1, "what it is", shown["case"].map(_CASES))
    shown = shown.rename(columns=_ERROR_NAMES)
    wrong = cases.loc[~cases["right"].astype(bool), "case"]
    if len(wrong):
        return verdict(f"✘ **Not as one process: {listed(wrong)}.**", shown, summary="Every case")
    return verdict(
        f"✔ **Losses, gradients' lengths and weights are those of one process, in all {len(cases)} cases.**",
        shown,
        summary="Every case",
    )


_ERROR_NAMES = {
    "loss_error": "loss off by",
    "norm_error": "gradients' length off by",
    "weight_error": "weights off by",
    "held_bytes": "bytes left whole",
}
_CASES = {
    "plain": "units that do not divide among the ranks",
    "tied": "embedding and head share a weight",
    "frozen": "some weights of a unit are frozen",
    "frozen_embedding": "the first unit's inputs need no gradient",
    "twice": "units are used twice in a step",
    "without_weights": "a unit has no weights",
    "unused": "a unit is not used",
    "checkpointed": "activation checkpointing",
    "accumulation": "two backwards, each sends",
    "no_sync": "two backwards, only the last one sends",
    "two_backwards": "two forwards, then two backwards",
    "kept_whole": "weights stay from forward to backward",
    "far_ahead": "two units gathered ahead",
    "bfloat16": "gathered and computed in bfloat16",
}


def as_formula(table: pd.DataFrame) -> Markdown:
    """Say whether what is held and sent is what the formulas say; takes `ledgers`."""
    shown = table.assign(setting=[setting_name(row) for row in table.itertuples()])
    columns = ["setting", "precision", *(name for name in table if name not in (*tables.SETTING, "equal"))]
    wrong = shown.loc[~table["equal"].astype(bool), "setting"]
    sentence = (
        f"✘ **Not as the formula says: {listed(wrong)}.**"
        if len(wrong)
        else (
            "✔ **Every call, every byte sent and every byte held is the formula's**: for torch's classes as for ours."
        )
    )
    shown = shown[columns].rename(columns={"held_mib": "held, MiB", "held_by_formula": "held by formula, MiB"})
    return verdict(sentence, shown.round(2), summary="Every setting")


def what_release_saves(*runs: pd.DataFrame) -> Markdown:
    """Say what releasing units after forward saves, and what gathering ahead costs; takes `peaks`, this run first."""
    sentences = []
    for table in runs:
        rows = table.set_index(["release", "prefetch"])["peak_gb"]
        ahead = max(prefetch for _, prefetch in rows.index)
        kept, released, far = rows.loc[False, 0], rows.loc[True, 0], rows.loc[True, ahead]
        said = f"releasing units saves {units.percent(1 - released / kept)} of the peak; {ahead} units ahead cost"
        sentences.append(f"{where(table)}: **{said} {units.percent(far / released - 1)}.**")
    return verdict(sentences[0], _stacked(runs, _shown_peaks))


def _shown_peaks(table: pd.DataFrame) -> pd.DataFrame:
    way = table["release"].map({True: "released", False: "kept whole"})
    return pd.DataFrame({"weights": way, "units ahead": table["prefetch"], "peak, GB": table["peak_gb"]})


def _stacked(runs: Sequence[pd.DataFrame], shown: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Return what is shown of each run, one below the other, with a column that says whose it is.

    A replay of the recorded run is the recorded run: it stands there once.
    """
    once = {(where(table), fact(table, "source")): shown(table) for table in runs}
    return pd.concat([*once.values()], keys=[place for place, _ in once], names=["run"]).reset_index("run")


def what_units_cost(*runs: pd.DataFrame) -> Markdown:
    """Say which units are fastest, and how ours compares with torch's; takes `steps`, this run first."""
    judged = runs[-1] if fact(runs[0], "on_cpu") else runs[0]
    tail = f" {CPU_TIMES}" if fact(runs[0], "on_cpu") else ""
    sentence = f"{where(judged).split(',')[0]}: {_said_of_units(judged)}{tail}"
    return verdict(sentence, _stacked(runs, _shown), summary="Every setting")


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    columns = {"step_ms": "step, ms", "spread_step_ms": "± ms", "longer_ms": "longer than nothing sent, ms"}
    columns |= {"spread_longer_ms": "± longer, ms"}
    columns |= {"over_torch": "× torch's", "peak": "peak, MiB", "predicted": "by formula, MiB"}
    shown = table.assign(setting=[setting_name(row) for row in table.itertuples()])
    return shown[["setting", "precision", *columns]].rename(columns=columns).round(2)


def _said_of_units(table: pd.DataFrame) -> str:
    rows = table[(table["precision"] == "bfloat16") & (table["status"] == "ok")]
    ours = rows[(rows["strategy"] == "ours") & (rows["unit"] == "block")]
    layers = rows[(rows["strategy"] == "ours") & (rows["unit"] == "layer")]
    if ours.empty or layers.empty:
        return "this run lacks ours with blocks or matrices as units."
    block, layer = (each.sort_values("step_ms").iloc[0] for each in (ours, layers))
    pair = (layer["step_ms"], block["step_ms"], layer["spread_step_ms"], block["spread_step_ms"])
    if resolved(*pair):
        times = units.times(pair[0] / pair[1])
        said = f"**each matrix as a unit takes {times} as long as each block**: more calls, and each costs time."
    else:
        said = "**matrices and blocks as units cannot be told apart.**"
    if pd.notna(ratio := block["over_torch"]):
        same = abs(ratio - 1) <= block["spread_over_torch"]
        said += (
            f" With blocks, ours {'is as fast as' if same else f'takes {units.times(ratio)} the time of'} fully_shard."
        )
    return said


def from_how_many_tokens(*runs: pd.DataFrame) -> Markdown:
    """Say from how many tokens on a step is no longer than with nothing sent; takes `batches`, this run first."""
    judged = runs[-1] if fact(runs[0], "on_cpu") else runs[0]
    tail = f" {CPU_TIMES}" if fact(runs[0], "on_cpu") else ""
    sentence = f"{where(judged).split(',')[0]}: {_said_of_tokens(judged)}{tail}"
    return verdict(sentence, _stacked(runs, _shown_batches), summary="Every batch")


def _shown_batches(table: pd.DataFrame) -> pd.DataFrame:
    columns = {"tokens": "tokens", "gradients_ms": "forward and backward, ms", "spread_gradients_ms": "± ms"}
    columns |= {"longer_share": "longer, %", "spread_longer_share": "± longer, %"}
    percents = {name: 100 * table[name] for name in columns if name.endswith("share")}
    shown = table.assign(strategy=table["strategy"].map(STRATEGIES), **percents)
    return shown[["strategy", *columns]].rename(columns=columns).round(1)


def first_hidden(table: pd.DataFrame) -> float:
    """Return the least tokens from which ours takes at most 5 % longer than with nothing sent; NaN if always more."""
    rows = table[(table["strategy"] == "ours") & table["longer_share"].notna()].sort_values("tokens")
    long = rows.loc[rows["longer_share"] > _HIDDEN, "tokens"]
    after = rows.loc[rows["tokens"] > long.max(), "tokens"] if len(long) else rows["tokens"]
    return after.min() if len(after) else float("nan")


_HIDDEN = 0.05  # of a step


def _said_of_tokens(table: pd.DataFrame) -> str:
    rows = table[(table["strategy"] == "ours") & table["longer_share"].notna()].sort_values("tokens")
    if rows.empty:
        return "this run lacks ours beside nothing sent."
    least, hidden = rows.iloc[0], first_hidden(table)
    longer = units.percent(least["longer_share"])
    said = f"with {units.count(least['tokens'])} tokens sending makes forward and backward {longer} longer"
    if least["longer_share"] <= least["spread_longer_share"]:
        return f"**sending costs no time beyond noise, even with {units.count(least['tokens'])} tokens.**"
    if hidden != hidden:
        return f"**{said}; no batch of this run hides it.**"
    return f"**{said}; from {units.count(hidden)} tokens on, it adds at most a twentieth.**"


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _held(runs: Mapping[str, Run]) -> str | None:
    rows = tables.ledgers(runs["steps"])
    whole = 16 * runs["steps"].plan.model.parameters / 2**20
    ours = rows[(rows["strategy"] == "ours") & (rows["unit"] == "block")]
    return f"{units.percent(ours['held_mib'].iloc[0] / whole)} of what a replica holds" if len(ours) else None


def _released(runs: Mapping[str, Run]) -> str:
    rows = tables.peaks(runs["timeline"]).set_index(["release", "prefetch"])["peak_gb"]
    return f"releasing units lowers the peak by {units.percent(1 - rows.loc[True, 0] / rows.loc[False, 0])}"


def _tokens(runs: Mapping[str, Run]) -> str | None:
    table = tables.batches(runs["batches"])
    if fact(table, "on_cpu"):
        return NOT_COMPARED
    hidden = first_hidden(table)
    return f"from {units.count(hidden)} tokens on at most 5 % longer" if hidden == hidden else "not hidden by any batch"


def _ahead(runs: Mapping[str, Run]) -> str | None:
    table = tables.steps(runs["steps"])
    if fact(table, "on_cpu"):
        return NOT_COMPARED
    rows = table[
        (table["strategy"] == "ours") & (table["unit"] == "block") & (table["precision"] == table["precision"].iloc[0])
    ]
    rows = rows.set_index("prefetch")
    if not {0, 1} <= {*rows.index}:
        return None
    none, one = rows.loc[0], rows.loc[1]
    if not resolved(none["step_ms"], one["step_ms"], none["spread_step_ms"], one["spread_step_ms"]):
        return "one unit ahead: no gain beyond noise"
    return f"one unit ahead: {units.times(one['step_ms'] / none['step_ms'])} the step without ({one['precision']})"


def _right(runs: Mapping[str, Run]) -> str:
    table = tables.cases(runs["equality"])
    return f"{int(table['right'].sum())} of {len(table)} cases are right"


_RULES = {
    "Between two uses, hold 1/N of everything": _held,
    "Release what backward will gather again": _released,
    "Tokens hide the gathering, whatever the unit's size": _tokens,
    "Gather the next unit while this one computes": _ahead,
    "Compare every awkward case with one process": _right,
}
