"""Tables of lab 11 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.profile import EXPLAINED
from labkit.story.verdict import CPU_TIMES, NOT_COMPARED, one_minute, verdict
from labkit.story.words import listed, resolved
from labkit.theory.sizes import GB, MIB
from lessons.optimizer_sharding import tables
from lessons.optimizer_sharding.theory import EXCHANGES, KERNELS, MODELS, OPTIMIZERS, STAGES, WAYS

if TYPE_CHECKING:
    from labkit.engine.run import Run

_EVEN = 0.05  # more than an equal share
_ALIKE = 0.05  # savings that differ by no more are said as one


def what_is_saved(saved: pd.DataFrame) -> Markdown:
    """Say how much of the peak sharding saves with either kernel, in GB; takes `saving`."""
    column = "measured" if saved["measured"].notna().any() else "predicted"
    gb = saved.set_index(["kernel", "way"])[column] * MIB / GB
    if not {("foreach", "sharded"), ("fused", "sharded")} <= {*gb.index}:
        return verdict("This run did not measure both kernels with and without sharding.")
    items = {"states": "states", "temporary": "square roots", "predicted": "both", "measured": "measured"}
    sizes = (saved[[*items, "peak"]] * MIB / GB).rename(columns=items).add_suffix(", GB")
    names = {"kernel": saved["kernel"].map(KERNELS), "way": saved["way"].map(WAYS)}
    shown = pd.DataFrame(names).join(sizes).dropna(axis="columns", how="all")
    if gb["fused", "sharded"] <= 0:
        return verdict("**Sharding saves nothing here.**", shown)
    saves = "saves" if column == "measured" else "should save"
    fused = gb["fused"]
    whose = "every sharded optimizer" if fused.max() <= (1 + _ALIKE) * fused.min() else "ours"
    least, many = (f"{units.number(gb[kernel, 'sharded'])} GB" for kernel in ("fused", "foreach"))
    if ("foreach", "zero_redundancy") not in gb.index:
        return verdict(f"**With one kernel, ours {saves} {least} of the peak; with many, {many}.**", shown)
    torchs = units.number(gb["foreach", "zero_redundancy"])
    much = f"at least {units.number(fused.min())} GB" if whose != "ours" else least
    head = f"**With one kernel, {whose} {saves} {much} of the peak.**"
    tail = f"With many, torch's {saves} {torchs} GB, ours {many}: it makes square roots bucket by bucket."
    return verdict(f"{head} {tail}", shown)


def ledger_holds(held: pd.DataFrame) -> Markdown:
    """Say whether the formulas explain the peaks, or without an allocator the tensors' bytes; takes `memory`."""
    if held["peak"].notna().any():
        worst = held["unexplained_share"].abs().max()
        if worst <= EXPLAINED:
            return verdict(f"✔ The formulas explain every peak to within {units.percent(worst)}.")
        return verdict(f"✘ **The formulas leave {units.percent(worst)} of a peak unexplained.**")
    if (error := held["counted_error"].max()) > 0.01:
        return verdict(f"✘ **What ranks hold differs from the formulas by up to {units.percent(error)}.**")
    return verdict("✔ What the ranks' tensors hold is what the formulas say. No allocator counts a CPU's peak.")


def even_shares(balance: pd.DataFrame, owned: pd.DataFrame) -> Markdown:
    """Say how uneven each rule gets, and what the ranks of a run counted; takes `balance`, `owned`."""
    worst = balance.loc[balance.groupby("rule", sort=False)["excess"].idxmax()].set_index("rule")
    even = listed(f"*{rule}*" for rule in worst.index[worst["excess"] <= _EVEN])
    uneven = worst[worst["excess"] > _EVEN].sort_values("excess")
    sentence = f"**Cut {even}, every rank has an equal share.**" if even != "none" else "**No rule is ever even.**"
    if len(uneven):
        row = uneven.iloc[-1]
        sentence += f" Dealt out *{row.name}*, a rank may have {units.percent(row['excess'])} more."
    shown = owned.assign(way=owned["way"].map(WAYS)).round(4)
    return verdict(sentence, shown, summary="Shares of the states, counted in a run")


def same_training(table: pd.DataFrame) -> Markdown:
    """Say whether ours trains as the optimizer that shards nothing, in every case; takes `equality`."""
    wrong = table[~table["equal"].astype(bool)]
    if len(wrong):
        names = listed(f"{row.optimizer} ({row.case})" for row in wrong.itertuples())
        return verdict(f"✘ **Not the same as the optimizer that shards nothing: {names}.**")
    worst = table[["error", "drift"]].max(axis=None)
    equal = "bit by bit" if worst == 0 else f"to {units.number(1e6 * worst, 2)} millionths of a tensor's largest number"
    return verdict(f"✔ **In all {len(table)} cases the weights are equal {equal}.**")


def _clear(row: pd.Series, other: pd.Series, part: str) -> bool:
    return resolved(row[f"{part}_ms"], other[f"{part}_ms"], row[f"spread_{part}_ms"], other[f"spread_{part}_ms"])


def update_times(table: pd.DataFrame) -> Markdown:
    """Say how our update of AdamW with many kernels compares with torch's, and what its sending adds; takes `steps`.

    Times of CPU processes are not compared.
    """
    rows = table[(table["optimizer"] == "adamw") & (table["kernel"] == "foreach")].set_index("way")
    if not {"sharded", "unsharded"} <= {*rows.index}:
        return verdict("There is nothing to compare with.")
    ours, torchs, shown = rows.loc["sharded"], rows[rows.index.str.startswith("zero")], _times_shown(table)
    if fact(table, "on_cpu"):
        sentence = f"Here our update takes {units.number(ours['update_ms'])} ms."
        return verdict(f"{sentence} {CPU_TIMES}", shown, summary="Every optimizer")
    head = f"**Our update takes {units.number(ours['update_ms'])} ms**"
    if len(torchs):
        best = torchs.loc[torchs["update_ms"].idxmin()]
        ratio = f"{units.times(ours['update_ms'] / best['update_ms'])} that of torch's faster one"
        head += f", {ratio}" if _clear(ours, best, "update") else ", as long as torch's within noise"
    whole = rows.loc["unsharded"]
    tail = "Our whole step, timed apart, takes as long as the unsharded one, within noise."
    if _clear(whole, ours, "step"):
        which = "shorter" if whole["step_ms"] > ours["step_ms"] else "**longer**"
        tail = f"Our whole step, timed apart, is {which} than the unsharded one."
    if any(row["step_ms"] > whole["step_ms"] and _clear(whole, row, "step") for _, row in torchs.iterrows()):
        tail += " With torch's optimizer it is longer."
    fused = table[(table["optimizer"] == "adamw") & (table["kernel"] == "fused")].set_index("way")
    if {"sharded", "unsharded"} <= {*fused.index}:
        ours, whole = fused.loc["sharded"], fused.loc["unsharded"]
        ratio = f"{units.times(ours['update_ms'] / whole['update_ms'])} the unsharded one's"
        takes = ratio if _clear(ours, whole, "update") else "as long as the unsharded one, within noise"
        tail += f" With one fused kernel the update takes {takes}."
        if ours["exposed_ms"] >= ours["least_sent_ms"]:
            tail += " Sending adds no less to it than the links' rate asks for: hardly any of it is hidden."
    return verdict(f"{head}. {tail}", shown, summary="Every optimizer")


def _times_shown(table: pd.DataFrame) -> pd.DataFrame:
    sending = [
        "–" if way == "unsharded" else units.number(ms)
        for way, ms in zip(table["way"], table["exposed_ms"], strict=True)
    ]
    return pd.DataFrame(
        {
            "optimizer": table["optimizer"].map(OPTIMIZERS),
            "kernel": table["kernel"].map(KERNELS),
            "way": table["way"].map(WAYS),
            "update, ms": table["update_ms"],
            "±": table["spread_update_ms"],
            "of it sending": sending,
            "step, ms": table["step_ms"],
            "± ms": table["spread_step_ms"],
        }
    )


def exchange_times(table: pd.DataFrame) -> Markdown:
    """Say whether to scatter the gradients is faster than to all-reduce them, both with all that a step sends.

    Takes `exchanges`. Times of CPU processes are not compared.
    """
    rows = table.set_index("way")
    shown = pd.DataFrame(
        {
            "way": table["way"].map(WAYS),
            "what it does": table["way"].map(EXCHANGES),
            "ms": table["ms"],
            "± ms": table["spread_ms"],
        }
    )
    if not {"sharded", "zero1"} <= {*rows.index} or (rows["status"] != "ok").any():
        return verdict("There is nothing to compare with.", shown)
    ours, zero = rows.loc["sharded"], rows.loc["zero1"]
    if fact(table, "on_cpu"):
        return verdict(f"Here ZeRO-1 takes {units.number(zero['ms'])} ms. {CPU_TIMES}", shown, summary="Every way")
    ratio = f"{units.times(zero['ms'] / ours['ms'])} ours" if _differ(ours, zero) else "as long as ours, within noise"
    head = f"**From gradients to new weights, ZeRO-1 takes {units.number(zero['ms'])} ms, {ratio}.**"
    return verdict(head, shown, summary="Every way")


def _differ(row: pd.Series, other: pd.Series) -> bool:
    return resolved(row["ms"], other["ms"], row["spread_ms"], other["spread_ms"])


def beside_zero(stages: pd.DataFrame) -> Markdown:
    """Say what ours has in common with ZeRO-1, and what it sends more; takes `stages`."""
    rows = stages.set_index("stage")
    ours, zero1 = rows.loc["ours"], rows.loc["zero1"]
    holds = "as much as" if abs(ours["held_gb"] - zero1["held_gb"]) < 1e-6 else "another amount than"
    ratio = ours["sent_gb"] / zero1["sent_gb"] if zero1["sent_gb"] else 1.0
    sends = f"sends {units.times(ratio)} its bytes" if ratio > 1 else "sends as much"
    columns = {"held_gb": "held per rank, GB", "sent_gb": "sent per rank and step, GB"}
    shown = stages[["stage", *columns]].assign(stage=stages["stage"].map(STAGES)).rename(columns=columns)
    summary = f"All figures, on {fact(stages, 'ranks')} ranks"
    return verdict(f"**Ours holds {holds} ZeRO-1 and {sends}.**", shown, summary=summary)


def whose_peaks(peaks: pd.DataFrame) -> Markdown:
    """Say which model's bytes are the printed peaks; takes `report_peaks`."""
    off = (peaks["gb"] / peaks["printed_gb"] - 1).abs()
    near = [model for model, rows in off.groupby(peaks["model"], sort=False) if rows.max() <= EXPLAINED]
    names = {"states": "optimizer states", "gb": "together, GB", "printed_gb": "published, GB"}
    sharded = peaks["sharded"].map({True: "yes", False: "no"})
    shown = peaks.assign(sharded=sharded, model=peaks["model"].map(MODELS))
    shown = shown[["model", "sharded", "parameters", "gradients", *names]].rename(columns=names)
    if not near:
        return verdict("**No model's bytes are near both printed peaks.**", shown)
    others = listed(MODELS[model] for model in peaks["model"].unique() if model not in near)
    fit = f"fit both printed peaks to within {units.percent(EXPLAINED)}"
    return verdict(
        f"**The bytes of {listed(MODELS[model] for model in near)} {fit}; those of {others} do not.**", shown
    )


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _half(runs: Mapping[str, Run]) -> str | None:
    saved = tables.saving(tables.memory(runs["memory"])).set_index(["kernel", "way"])
    measured = saved["measured"].get(("fused", "sharded"))
    return f"{units.number(measured * MIB / GB)} GB less per rank" if pd.notna(measured) else None


def _elements(runs: Mapping[str, Run]) -> str:
    share = tables.owned(runs["memory"]).set_index("way").loc["sharded", "fullest"]
    return f"the fullest of {runs['memory'].plan.gpus} ranks has {units.percent(share)}"


def _hidden(runs: Mapping[str, Run]) -> str | None:
    rows = tables.steps(runs["steps"])
    if fact(rows, "on_cpu"):
        return NOT_COMPARED
    rows = rows[(rows["optimizer"] == "adamw") & (rows["kernel"] == "foreach")].set_index("way")
    if "sharded" not in rows.index:
        return None
    ours = rows.loc["sharded"]
    return f"{units.number(ours['exposed_ms'])} of an update's {units.number(ours['update_ms'])} ms wait for sending"


def _right(runs: Mapping[str, Run]) -> str:
    table = tables.equality(runs["equality"])
    return f"{int(table['equal'].sum())} of {len(table)} cases are equal"


_RULES = {
    "Equal states on N ranks are kept once": _half,
    "Cut by elements, not by parameters": _elements,
    "Send a bucket while the next one is updated": _hidden,
    "Compare every case with the optimizer that shards nothing": _right,
}
