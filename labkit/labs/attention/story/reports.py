"""The published attention figures → sentences: what no GPU can do, what does not grow, what was held, what was won."""

from __future__ import annotations

from functools import partial

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units, words
from labkit.story.units import span

_TWO_DIGITS = partial(units.number, digits=2)
_SAME = 0.1  # times within 10 % are called the same
_FOLLOWS = 1.0  # a time that grows with a lower power of N does not follow work that grows as N²
_WHOLE = 0.01
_HELD = {
    "by_hand": "exp(S − max) and P, as of a softmax written by hand",
    "plain": "P alone, as of a fused softmax",
    "flash": "nothing N×N, as of tiles",
}


def doubt_reports(
    *,
    times: pd.DataFrame,
    growth: pd.DataFrame,
    backwards: pd.DataFrame,
    memory: pd.DataFrame,
    flash: pd.DataFrame,
    flash_growth: pd.DataFrame,
    precisions: pd.DataFrame,
    speedups: pd.DataFrame,
    parts: pd.DataFrame,
    head_dims: pd.DataFrame,
) -> Markdown:
    """Say, as at most eight bullets, which printed times cannot be, what they were of, and what Triton won.

    Takes the tables of `tables.reading.everything` by their names.
    """
    sentences = [
        _possible(times, flash),
        _growing(growth),
        _twice(backwards),
        _compiled(backwards, growth),
        _held(memory),
        _precisions(precisions),
        _won(speedups, flash_growth, parts),
        _fixed(head_dims),
    ]
    return Markdown("\n".join(f"- {sentence}" for sentence in sentences))


def _possible(times: pd.DataFrame, flash: pd.DataFrame) -> str:
    tables = pd.concat([times, flash])
    wrong = tables[tables["verdict"] == "impossible"]
    if wrong.empty:
        return "An H100 allows every printed time."
    counts = [f"{_wrong(rows)} of {len(rows)} {phase}" for phase, rows in times.groupby("phase", sort=False)]
    worst = wrong.loc[wrong["share_of_limit"].idxmax()]
    work = "reading and writing" if worst["least_move_ms"] > worst["least_compute_ms"] else "multiplying"
    least, printed = units.number(worst["least_ms"]), units.number(worst["ms"])
    return (
        f"**Impossible on an H100** are {words.listed(counts)} times in attention.csv, {_wrong(flash)} of {len(flash)} "
        f"in flash_attention.csv. At {units.count(worst['sequence'])} and head dimension {worst['head_dim']} {work} "
        f"alone takes {least} ms; {worst['phase']} is printed as {printed}."
    )


def _wrong(rows: pd.DataFrame) -> int:
    return (rows["verdict"] == "impossible").sum()


def _growing(table: pd.DataFrame) -> str:
    rows = table[table["last"] == table["last"].max()]
    first, last = (units.count(rows[end].iloc[0]) for end in ("first", "last"))
    grown = f"From {first} to {last} work grows {span(rows['work'])}"
    columns = words.listed(f"{phase} times {span(own['time'])}" for phase, own in rows.groupby("phase"))
    flat = _flat(table)
    if not flat:
        return f"{grown}, {columns}: **all follow the work.**"
    short = table[(table["last"] == table["last"].min()) & table["phase"].isin(flat)]
    return (
        f"{grown}, {columns}; from {units.count(short['first'].iloc[0])} to {units.count(short['last'].iloc[0])} it "
        f"grows {span(short['work'])}, {words.listed(flat)} {span(short['time'])}. "
        f"**{words.listed(flat).capitalize()} was launched, not waited for.**"
    )


def _twice(table: pd.DataFrame) -> str:
    apart = (table["ratio"] - 1).abs() > _SAME
    if not apart.any():
        return "Eager backward, printed twice, agrees within 10 % in every setting."
    longest = table[table["sequence"] == table["sequence"].max()]
    sentence = (
        f"Eager backward, printed twice, differs by more than 10 % in {apart.sum()} of {len(table)} settings "
        f"({span(table['ratio'])}): **they did not time the same**"
    )
    if longest["apart_ms"].max() > (1 + _SAME) * longest["apart_ms"].min():
        return f"{sentence}."
    return (
        f"{sentence}. At {units.count(longest['sequence'].iloc[0])} the surplus is "
        f"{span(longest['apart_ms'], units.number)} ms at every head dimension, as "
        f"{span(longest['passes'], _TWO_DIGITS)} passes over an N×N matrix take: "
        "work on scores, no product."
    )


def _compiled(table: pd.DataFrame, growth: pd.DataFrame) -> str:
    gains = f"forward gains {span(table['forward_compiled_ratio'])}"
    same = table["same"].sum()
    if not same:
        return f"Compiling changes every backward ({span(table['compiled_ratio'])}); {gains}."
    sentence = f"Compiled, {same} of {len(table)} backwards take eager's time within 3 %, as if not compiled; {gains}"
    return f"{sentence}, **of launching time.**" if "forward" in _flat(growth) else f"{sentence}."


def _held(table: pd.DataFrame) -> str:
    fit = table.iloc[0]
    if abs(fit["squares"] - round(fit["squares"])) > _WHOLE or fit["holds"] not in _HELD:
        return f"Memory before backward holds {units.number(fit['squares'])} N×N matrices, as no implementation here."
    large = table.loc[table["printed_squares"].idxmin()]
    return (
        f"Memory before backward is {units.number(fit['squares'])} N×N matrices, {units.number(fit['tensors'])} N×d "
        f"tensors, {units.number(fit['row_bytes'])} bytes a row and {units.number(fit['fixed_mib'])} MiB, in GB of "
        f"10^9 bytes (at {units.count(large['sequence'])}: {units.number(large['memory_gb'])}). **Held is "
        f"{_HELD[fit['holds']]}.**"
    )


def _precisions(table: pd.DataFrame) -> str:
    flash = table[(table["implementation"] == "flash") & (table["phase"] == "forward")]
    rows = flash[flash["sequence"] == flash["sequence"].max()]
    sentence = (
        f"At {units.count(rows['sequence'].iloc[0])} Triton's forward takes {span(rows['ratio'])} bfloat16's time in "
    )
    sentence += "float32: " + ("**bfloat16 gains nothing.**" if rows["ratio"].max() <= 1 + _SAME else "bfloat16 gains.")
    best = table.loc[table["float32_tflops"].idxmax()]
    rate = f"{units.number(best['float32_tflops'])} TFLOP/s"
    if best["share_of_fp32"] > 1:
        return f"{sentence} Float32's best, {rate}, is more than it has without tensor cores: **TF32 was used.**"
    return (
        f"{sentence} Float32's best, {rate}, is {units.percent(best['share_of_fp32'])} of its peak without tensor "
        f"cores (TF32's: {units.percent(best['share_of_tf32'])}): **that neither shows nor excludes them.** "
        f"Bfloat16's best is {units.percent(table['share_of_bf16'].max())} of its peak."
    )


def _won(table: pd.DataFrame, growth: pd.DataFrame, parts: pd.DataFrame) -> str:
    rows = table[table["phase"] == "forward"]
    least = rows.groupby("sequence")["speedup"].min()
    lost_at = least.index[least < 1].max()
    won = rows[~(rows["sequence"] <= lost_at)]
    sentence = f"Triton's forward is {span(won['speedup'])} as fast as PyTorch's" if len(won) else "Triton wins nowhere"
    if pd.notna(lost_at):
        short = rows[rows["sequence"] <= lost_at]
        sentence += f" beyond {units.count(lost_at)}" if len(won) else ""
        sentence += f"; up to there it loses {(short['speedup'] < 1).sum()} of {len(short)} ({span(short['speedup'])})"
    sentence += "." + _launched(growth, parts)
    if table["sequence"].max() < fact(table, "asked"):
        asked, needed = units.count(fact(table, "asked")), units.number(fact(table, "asked_gb"))
        sentence += f" {asked}, where plain's matrices take {needed} GB, is missing."
    return sentence


def _launched(growth: pd.DataFrame, parts: pd.DataFrame) -> str:
    rows = growth[growth["first"] == growth["first"].min()]
    if rows["exponent"].max() >= _FOLLOWS:
        return ""
    sums = parts.loc[parts["sequence"] <= rows["last"].iloc[0], "share"]
    return (
        f" From {units.count(rows['first'].iloc[0])} to {units.count(rows['last'].iloc[0])} work grows "
        f"{span(rows['work'])}, times {span(rows['time'])}, and forward and backward alone make "
        f"{span(sums, units.percent)} of both: **launches.**"
    )


def _fixed(table: pd.DataFrame) -> str:
    flash = table[table["implementation"] == "flash"]
    backward, forward = (flash[flash["phase"] == phase] for phase in ("backward", "forward"))
    plain = table[(table["implementation"] == "plain") & (table["phase"] == "backward")]
    shares = {name: span(rows["share"], units.percent) for name, rows in (("ours", backward), ("forward", forward))}
    fixed = f"{shares['ours']} of Triton's backward does not depend on the head dimension (forward: {shares['forward']}"
    if backward["share"].min() <= 2 * forward["share"].max():
        return f"{fixed}): both go with the products."
    return (
        f"{fixed}, PyTorch's backward: {span(plain['share'], units.percent)}) and takes as long as "
        f"{span(backward['passes'], _TWO_DIGITS)} passes over an N×N matrix: **like matrices, not tiles.**"
    )


def _flat(growth: pd.DataFrame) -> list[str]:
    """Return the phases of which no column follows the work, over the longest span of lengths."""
    rows = growth[growth["last"] == growth["last"].max()]
    highest = rows.groupby("phase")["exponent"].max()
    return list(highest.index[highest < _FOLLOWS])
