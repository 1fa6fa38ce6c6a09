"""Tables of lab 17 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, fact_or, is_recorded
from labkit.story import units
from labkit.story.verdict import CPU_TIMES, NOT_COMPARED, one_minute, verdict
from labkit.story.words import capitalised, listed, resolved
from lessons.one_gpu import tables

if TYPE_CHECKING:
    from labkit.engine.run import Run

_NEAR_BEST = 0.05  # of the best rate


def fastest_step(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what all knobs together bring, recorded and, unless on CPUs, here; takes two `ladder`s."""
    best = recorded.loc[recorded["times_first"].idxmax()]
    head = f"**Recorded: {units.times(best['times_first'])} as fast with {best['knob']}.**"
    wide = recorded[~recorded["knob"].str.startswith("float8")].nlargest(1, "tokens_per_s").iloc[0]
    if pd.notna(wide["mfu"]):
        head += f" In bfloat16 the fastest is {wide['knob']}, with an MFU of {units.percent(wide['mfu'])}."
    rows = here[here["tokens_per_s"].notna()]
    if is_recorded(here):
        return verdict(head)
    if fact(here, "on_cpu"):
        return verdict(f"{head} {CPU_TIMES}")
    if len(rows) < 2:
        return verdict(f"{head} Here fewer than two settings were measured.")
    last, first = rows.loc[rows["tokens_per_s"].idxmax()], rows.iloc[0]
    if not resolved(*(row[name] for name in ("tokens_per_s", "spread_tokens_per_s") for row in (last, first))):
        return verdict(f"{head} Here no knob makes it faster beyond noise.")
    return verdict(f"{head} Here {units.times(last['times_first'])}, with {last['knob']}.")


def answer(table: pd.DataFrame) -> Markdown:
    """Say how fast the fastest bfloat16 rung is, and which two rungs bring most; takes a `ladder`."""
    wide = table[~table["knob"].str.startswith("float8")]
    best = wide.loc[wide["tokens_per_s"].idxmax()]
    reached = f", an MFU of {units.percent(best['mfu'])}" if pd.notna(best["mfu"]) else ""
    most = listed(table.nlargest(2, "times_previous")["knob"])
    rate = units.count(round(best["tokens_per_s"]))
    return verdict(f"**In bfloat16 one GPU trains {rate} tokens/s{reached}.** {capitalised(most)} bring most of it.")


def in_float8(table: pd.DataFrame) -> Markdown:
    """Say what float8 products gain, and how far gradients and losses are from those of bfloat16; takes `float8`."""
    if table.empty:
        return verdict("No GPU ran the step in float8 and in bfloat16.")
    row = table.iloc[0]
    gain = f"{units.times(row['times'])} as fast" if row["times"] > 1 else "no faster"
    return verdict(
        f"**With float8 products the step is {gain}.** Its gradient differs from bfloat16's by "
        f"{units.percent(row['gradient_away'])}, the loss of no step by more than {units.percent(row['loss_away'])}."
    )


def power_limit(recorded: pd.DataFrame) -> Markdown:
    """Say whether the ladder ends at the power limit: the clock of its last rung beside the first's; takes `ladder`."""
    conditions = fact_or(recorded, "conditions", {})
    first, last = recorded["sm_mhz"].iloc[[0, -1]]
    if not last < (1 - _NEAR_BEST) * first or "power cap" not in str(conditions.get("throttle_reasons")):
        return verdict("The run does not show that the GPU's power limit slows its last rung.")
    return verdict(
        f"**The last rungs meet the GPU's power limit of {conditions['power_limit_w']:.0f} W**: its clock falls from "
        f"{units.count(first)} MHz on the first rung to {units.count(last)} MHz on the last, and the peak rate with it."
    )


def enough_sequences(table: pd.DataFrame) -> Markdown:
    """Say from which batch on more of it brings little, and whether the ledger knew the peaks; takes `batches`."""
    fits = table[table["tokens_per_s"].notna()]
    if fits.empty:
        return verdict("No batch fitted.")
    near = _near_best(table)
    head = f"**From {near} sequences on, the rate is within {100 * _NEAR_BEST:g} % of the best.**"
    apart = (1 - fits["predicted_mib"] / fits["peak_mib"]).abs().max()
    if pd.isna(apart):
        return verdict(f"{head} There is no GPU memory to run out of.")
    return verdict(f"{head} The ledger is within {units.percent(apart)} of every peak.")


def _near_best(table: pd.DataFrame) -> int | None:
    """Return the fewest sequences whose rate is near the best one; None where nothing fitted."""
    fits = table[table["tokens_per_s"].notna()]
    near = fits[fits["tokens_per_s"] >= (1 - _NEAR_BEST) * fits["tokens_per_s"].max()]
    return None if near.empty else int(near["micro_batch"].min())


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth here and as recorded; runs by the names of their plans."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _knobs(runs: Mapping[str, Run]) -> str:
    table = tables.ladder(runs["ladder"])
    best = table.loc[table["tokens_per_s"].idxmax()]
    return f"{units.times(best['times_first'])} as fast with all knobs up to {best['knob']}"


def _on_gpus(plan: str, show: Callable[[Mapping[str, Run]], str | None]) -> Callable[[Mapping[str, Run]], str | None]:
    return lambda runs: NOT_COMPARED if runs[plan].plan.device == "cpu" else show(runs)


def _utilised(runs: Mapping[str, Run]) -> str | None:
    table = tables.ladder(runs["ladder"])
    best = table[~table["knob"].str.startswith("float8")].nlargest(1, "tokens_per_s")
    return f"MFU {units.percent(best['mfu'].iloc[0])} in bfloat16, {best['knob'].iloc[0]}" if len(best) else None


def _sequences(runs: Mapping[str, Run]) -> str | None:
    near = _near_best(tables.batches(runs["batches"]))
    return None if near is None else f"{near} sequences: within {100 * _NEAR_BEST:g} % of the best rate"


def _rounded(runs: Mapping[str, Run]) -> str | None:
    rows = tables.symptoms(runs["suspects"]).set_index("variant")
    if "rounded_away" not in rows.index:
        return None
    return f"without it, gains move {units.percent(rows.loc['rounded_away', 'gains_moved'])} of their way"


_RULES = {
    "Make one GPU fast before you add another": _on_gpus("ladder", _knobs),
    "Know the limit first: how much of the peak rate is reached?": _on_gpus("ladder", _utilised),
    "Take more sequences until the rate stops rising": _on_gpus("batches", _sequences),
    "An update that is too small for bfloat16 needs a float32 copy": _rounded,
}
