"""Profiles of lab 06 → sentences: the report's five questions, answered from this run's tables."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, say
from lessons.benchmarking.theory import NAMES, PRECISION_NAMES

_CLOSE = 0.03  # of the clock: two clocks that agree
_IDLE = 0.1  # of a window: less is no waiting
_ABOVE = 1.02  # of a roof: what a datasheet's rounding explains
_LARGE = 0.03  # of a step: operators that a sentence names


def explain_profile(
    accounts: pd.DataFrame, kernels: pd.DataFrame, families: pd.DataFrame, attention: pd.DataFrame
) -> Markdown:
    """Answer the five questions as a list, from the tables of `tables.profiles` with these names."""
    answers = (_clocks(accounts), _kernels(kernels), _others(families), _shares(families), _attention(attention))
    text = "\n".join(f"- **({letter})** {answer}" for letter, answer in zip("abcde", answers, strict=True))
    return say(text, small=fact(accounts, "small"))


def _clocks(table: pd.DataFrame, phase: str = "forward") -> str:
    """Say whether the profiler agrees with the clock, what watching costs, and how long the GPU has no work."""
    rows = table[table["phase"] == phase]
    worst = rows.loc[rows["apart"].abs().idxmax()]
    verdict = "**they agree**" if abs(worst["apart"]) <= _CLOSE else "**they do not agree**"
    slowed = rows.loc[rows["slowed"].idxmax()]
    said = (
        f"Profiler and clock time the same {NAMES[phase]} at most {units.percent(abs(worst['apart']))} apart "
        f"({_setting(worst)}): {verdict} within {units.percent(_CLOSE)}."
    )
    if slowed["slowed"] > _CLOSE:
        cost = f"up to {units.percent(slowed['slowed'])} slower than without a profiler"
        said = f"{said} Watching makes a forward {cost} ({_setting(slowed)})."
    else:
        said = f"{said} Watching makes no forward slower by more than that."
    if fact(table, "small"):
        return said
    idle = rows.loc[rows["idle_share"].idxmax()]
    if idle["idle_share"] <= _IDLE:
        return f"{said} The GPU is never without a kernel for more than {units.percent(_IDLE)} of that time."
    waits = f"**the GPU has no kernel for {units.percent(idle['idle_share'])} of that time**"
    return f"{said} In {_setting(idle)} {waits}: it waits for launches."


def _setting(row: pd.Series) -> str:
    return f"`{row['model']}`, {PRECISION_NAMES[row['precision']]}"


def _kernels(table: pd.DataFrame) -> str:
    named = table[table["family"] != ""]
    parts = []
    for phase in ("forward", "both"):
        top = named.loc[named[f"{phase}_total_us"].idxmax()]
        share, calls = units.percent(top[f"{phase}_share"]), units.number(top[f"{phase}_calls"])
        parts.append(f"in {NAMES[phase]} `{top['kernel']}` ({share} of the time, {calls} calls)")
    model = f"`{fact(table, 'model')}`, {PRECISION_NAMES[fact(table, 'precision')]}"
    return f"The kernel that takes most in {model}: {listed(parts)}."


def _others(families: pd.DataFrame) -> str:
    """Say which family takes most of a forward besides products, setting by setting."""
    rows = families[(families["phase"] == "forward") & (families["family"] != "matmul")]
    most = rows.loc[rows.groupby(["model", "precision"], sort=False)["share"].idxmax()]
    parts = [f"{row['family']} {units.percent(row['share'])} ({_setting(row)})" for _, row in most.iterrows()]
    return f"Besides matrix products, most of a forward takes: {listed(parts)}."


def _shares(families: pd.DataFrame) -> str:
    """Say how the share of products changes from a forward to a whole AdamW step."""
    rows = families[families["family"] == "matmul"]
    index = ["model", "precision"]
    wide = rows.pivot_table(index=index, columns="phase", values="share", aggfunc="first", sort=False).reset_index()
    parts = [
        f"{units.percent(row['forward'])} → {units.percent(row['step'])} ({_setting(row)})"
        for _, row in wide.iterrows()
    ]
    falls = (wide["step"] < wide["forward"]).sum()
    verdict = {len(wide): "**it falls**", 0: "**it rises**"}.get(
        int(falls), f"it falls in {falls} of {len(wide)} settings"
    )
    return f"Share of products, from a forward to an AdamW step: {listed(parts)}; {verdict}."


def _attention(table: pd.DataFrame) -> str:
    """Say how softmax compares with attention's two products: in time, in FLOP, and in bytes, which explain it."""
    rows = table[table["part"] == "softmax"]
    times, flop, moved = (rows[f"{name}_of_products"] for name in ("us", "flop", "moved_bytes"))
    said = (
        f"Softmax takes {_percents(times)} of the time of both products with {_percents(flop)} of their FLOP, so that "
        f"a FLOP of it takes {units.span(times / flop)} as long. It moves {_percents(moved)} of their bytes"
    )
    if _off(times / moved) < _off(times / flop):
        return f"{said}: **the bytes explain its time, not the FLOP**."
    return f"{said}, which explains its time no better than the FLOP do."


def _percents(shares: pd.Series) -> str:
    return units.span(shares, units.percent)


def _off(ratios: pd.Series) -> float:
    """Return by which factor ratios are away from 1, at the median."""
    return float(ratios.where(ratios > 1, 1 / ratios).median())


def explain_roofline(table: pd.DataFrame) -> Markdown:
    """Say which operators the memory bounds, how near the products come to their roof, and which lie above a roof."""
    peak, large = fact(table, "peak_tflops"), table[table["share"] >= _LARGE]
    if pd.isna(peak):
        return say("No limit of this machine is known: the chart has no roofs.", small=fact(table, "small"))
    products = table.loc[table["flop"].idxmax()]
    memory = large[large["bound"] == "memory"]
    sentences = [
        f"`{products['operator']}` does most FLOP, {units.number(products['flop_per_byte'])} per byte, at "
        f"{units.number(products['tflops'])} TFLOP/s: {units.percent(products['of_roof'])} of the roof "
        f"({products['bound']}).",
    ]
    if len(memory):
        parts = [f"`{row.operator}` ({units.percent(row.share)} of the time)" for row in memory.itertuples()]
        sentences.append(f"**Memory bounds** {listed(parts)}: more TFLOP/s would not help these.")
    above = memory[memory["of_roof"] > _ABOVE]
    if len(above):
        names = listed(f"`{name}`" for name in above["operator"])
        sentences.append(f"Above the memory's roof: {names}; some operands were still in the GPU's cache.")
    wrong = large[(large["bound"] == "compute") & (large["of_roof"] > _ABOVE)]
    if len(wrong):
        names = listed(f"`{name}`" for name in wrong["operator"])
        sentences.append(f"**Faster than this GPU computes**: {names}; the time or the count of FLOP is wrong.")
    low = memory[memory["of_roof"] < 0.5]
    if len(low):
        names = listed(f"`{name}`" for name in low["operator"])
        sentences.append(f"Below half of their roof: {names}.")
    return say(*sentences, small=fact(table, "small"))
