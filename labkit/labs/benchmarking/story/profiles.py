"""Profiles of lab 06 → sentences: the report's five questions, answered from this run's tables."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.labs.benchmarking.theory import NAMES, PRECISION_NAMES
from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, say

_CLOSE = 0.03  # of the clock: two clocks that agree
_ABOVE = 1.02  # of a roof: what a datasheet's rounding explains
_LARGE = 0.03  # of a step: operators that a sentence names


def explain_accounts(table: pd.DataFrame, phase: str = "forward") -> Markdown:
    """Say whether the profiler agrees with the host's clock, what watching costs, and how long the GPU has no work."""
    rows = table[table["phase"] == phase]
    worst = rows.loc[rows["apart"].abs().idxmax()]
    verdict = "**they agree**" if abs(worst["apart"]) <= _CLOSE else "**they do not agree**"
    slowed = rows.loc[rows["slowed"].idxmax()]
    sentences = [
        f"Profiler and clock tell the same {NAMES[phase]} at most {units.percent(abs(worst['apart']))} apart "
        f"({_setting(worst)}): {verdict} within {units.percent(_CLOSE)}.",
        f"Being watched makes it up to {units.percent(max(0.0, slowed['slowed']))} slower than the clock alone says "
        f"({_setting(slowed)}), so compare a profile with the clock of the same steps.",
    ]
    idle = rows.loc[rows["idle_share"].idxmax()]
    if fact(table, "small"):
        return say(*sentences, small=True)
    sentences.append(
        f"In {_setting(idle)} **the GPU has no kernel for {units.percent(idle['idle_share'])} of that time**: it waits "
        "for launches."
        if idle["idle_share"] > 0.1
        else "The GPU is never without a kernel for more than a tenth of that time."
    )
    return say(*sentences)


def _setting(row: pd.Series) -> str:
    return f"`{row['model']}`, {PRECISION_NAMES[row['precision']]}"


def explain_kernels(*tables: pd.DataFrame) -> Markdown:
    """Say which kernel takes most of each phase, how often it is called, and which one takes most beside products."""
    sentences = []
    for table in tables:
        named = table[table["family"] != ""]
        top, phase = named.iloc[0], NAMES[fact(table, "phase")]
        sentences.append(
            f"In {phase}, `{top['kernel']}` takes most: {units.percent(top['share'])} in {units.number(top['calls'])} "
            "calls."
        )
        others = named[named["family"] != "matmul"]
        if top["family"] == "matmul" and len(others):
            other = others.iloc[0]
            sentences.append(f"Beside products, `{other['kernel']}` does: {units.percent(other['share'])}.")
    return say(*sentences, small=fact(tables[0], "small"))


def explain_families(table: pd.DataFrame) -> Markdown:
    """Say what takes time besides products, and how their share changes from a forward to a whole AdamW step."""
    sentences = []
    for (model, precision), rows in table.groupby(["model", "precision"], sort=False):
        wide = rows.pivot_table(index="family", columns="phase", values="share", aggfunc="first").fillna(0.0)
        if "matmul" not in wide.index or not {"forward", "step"} <= set(wide):
            continue
        forward, step = wide.loc["matmul", "forward"], wide.loc["matmul", "step"]
        others = wide["step"].drop("matmul").sort_values(ascending=False)
        change = "fewer" if step < forward else "more"
        sentences.append(
            f"`{model}`, {PRECISION_NAMES[precision]}: products take {units.percent(forward)} of a forward and "
            f"{units.percent(step)} of an AdamW step, {change}; besides them {others.index[0]} takes "
            f"{units.percent(others.iloc[0])} of the step."
        )
    text = "\n".join(f"- {sentence}" for sentence in sentences)
    return say(text, small=fact(table, "small"))


def explain_attention(table: pd.DataFrame) -> Markdown:
    """Say how softmax compares with attention's two products: in time, in FLOP, and in bytes, which explain it."""
    rows = table[table["part"] == "softmax"]
    times, flop, moved = (rows[f"{name}_of_products"] for name in ("us", "flop", "moved_bytes"))
    sentences = [
        f"Softmax takes {_percents(times)} of the time of both products with {_percents(flop)} of their FLOP: per "
        f"FLOP, it is {units.span(times / flop)} as slow."
    ]
    off_flop, off_bytes = (_off(times / other) for other in (flop, moved))
    bytes_of = f"It moves {_percents(moved)} of their bytes"
    if off_bytes < off_flop:
        sentences.append(f"{bytes_of}: **the bytes explain its time, not the FLOP**.")
    else:
        sentences.append(f"{bytes_of}, which explains its time no better than the FLOP do.")
    return say(*sentences, small=fact(table, "small"))


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
    above = large[large["of_roof"] > _ABOVE]
    if len(above):
        names = listed(f"`{name}`" for name in above["operator"])
        sentences.append(f"{names} lie above the memory's roof: their operands were still in the GPU's cache.")
    low = memory[memory["of_roof"] < 0.5]
    if len(low):
        names = listed(f"`{name}`" for name in low["operator"])
        sentences.append(f"Below half of their roof: {names}; kernels of a few µs do not reach a roof.")
    return say(*sentences, small=fact(table, "small"))
