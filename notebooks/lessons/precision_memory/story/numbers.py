"""Tables of numbers → sentences: what sums lose, what autocast casts, what LayerNorm needs, what scaling does."""

from __future__ import annotations

import math

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, say, text
from lessons.precision_memory.theory.floats import FORMATS, STEPS, VALUE, stalls_at

_NEAR = 0.005  # of the sum: an error below is called small
_LOST = 0.001  # of gradients: a share below is called none
_DIGITS = 2.0**-8  # bfloat16's rounding: an error of its own size


def explain_sums(table: pd.DataFrame) -> Markdown:
    """Say which sums are off, whether torch gives what simulated rounding gives, and why a sum stalls."""
    exact = VALUE * STEPS
    off = table[table["error"].abs() > _NEAR * exact]
    unequal = table[table["equal"].eq(False)]
    known = int(table["equal"].notna().sum())
    same = f"torch gives the bits of the simulated rounding in all {known} ways that it can add here."
    if len(unequal):
        same = f"**torch differs from the simulated rounding** in {listed(unequal['way'])}."
    return say(_off(off, exact), *_stalled(table), _mixed(table), same)


def _off(off: pd.DataFrame, exact: float) -> str:
    if off.empty:
        return f"No sum is more than {units.percent(_NEAR)} from {exact:g}."
    parts = [f"{row.way} ends at {units.number(row.theory, 4)}" for row in off.itertuples()]
    return f"**More than {units.percent(_NEAR)} from {exact:g}**: {listed(parts)}."


def _stalled(table: pd.DataFrame) -> list[str]:
    totals = table.set_index("way")["theory"]
    found = []
    for name in ("float16", "bfloat16"):
        total, stall = totals.get(f"{name} + {name}", math.nan), stalls_at(name)
        if total == stall:
            found.append(
                f"The {name} sum stops at {stall:g}: from there on neighbours are "
                f"{FORMATS[name].spacing(stall):g} apart, "
                f"and {VALUE:g} is less than half of that."
            )
        elif total < stall:
            found.append(
                f"The {name} sum does not stop before {stall:g}, but near {units.number(total, 4)} each sum is "
                f"rounded to a "
                f"multiple of {FORMATS[name].spacing(total):g}."
            )
    return found


def _mixed(table: pd.DataFrame) -> str | None:
    totals = table.set_index("way")["theory"]
    one, other = totals.get("float32 + float16"), totals.get("float32 + float32(float16)")
    if one is None or other is None:
        return None
    term = FORMATS["float16"].rounded(VALUE)
    if one == other and abs(one - STEPS * term) < abs(one - STEPS * VALUE):
        return (
            f"Both float32 sums of float16 terms are equal: what is left is the term's own rounding, "
            f"{units.number(term, 6)} "
            f"instead of {VALUE:g}. The accumulator's format decides, not the term's."
        )
    return "The two float32 sums of float16 terms differ."


def explain_autocast(casts: pd.DataFrame, norms: pd.DataFrame) -> Markdown:
    """Return the dtypes as a table, then what autocast makes 16 bits wide, and what LayerNorm's statistics need."""
    heads = [str(name) for name in casts.columns]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in casts.itertuples(index=False)]
    sentences = [text(say(*_cast(casts))), text(say(*_statistics(norms)))]
    return Markdown("\n\n".join(["\n".join(lines), *sentences]))


def _cast(table: pd.DataFrame) -> list[str]:
    named = table.set_index("what")
    sentences = []
    for precision in ("float16", "bfloat16"):
        narrow = [what for what, dtype in named[precision].items() if dtype == precision]
        sentences.append(f"Under autocast to {precision}, {listed(narrow)} are {precision}; all else stays float32.")
    loss = named.loc["loss", ["float16", "bfloat16"]]
    if (loss == "float32").all():
        sentences.append("**The loss is float32**: autocast runs cross-entropy in float32.")
    else:
        sentences.append(f"**The loss is {loss.iloc[0]}** under autocast to float16.")
    if fact(table, "device") == "cpu" and named.loc["LayerNorm's output", "float16"] != "float32":
        sentences.append("On a CPU autocast leaves LayerNorm in its input's dtype; on a GPU it runs in float32.")
    return sentences


def _statistics(table: pd.DataFrame) -> list[str]:
    errors = dict(iter(table.groupby("precision", sort=False)))
    sentences = []
    if "float16" in errors:
        sentences.append(_overflow(errors["float16"][~errors["float16"]["finite"].astype(bool)]))
    if {"bfloat16", "float32"} <= set(errors):
        sentences.append(_few_digits(errors["bfloat16"], errors["float32"]))
    return sentences


def _few_digits(narrow: pd.DataFrame, wide: pd.DataFrame) -> str:
    if not narrow["finite"].astype(bool).all():
        return "**bfloat16 statistics overflow, too.**"
    row = narrow.loc[narrow["error"].idxmax()]
    if row["error"] <= 10 * _DIGITS:
        return f"bfloat16 statistics are enough here: their error is at most {units.percent(row['error'])}."
    return (
        "bfloat16 statistics stay finite everywhere, but **bfloat16 needs float32 statistics all the same**: at a "
        f"{row['varied']} of {row['input_size']:g} the error is {units.percent(row['error'])}, and with float32 "
        f"statistics of the same numbers at most {wide['error'].max():.0e}. The mean is rounded to few digits before "
        "it is subtracted."
    )


def _overflow(broken: pd.DataFrame) -> str:
    if broken.empty:
        return "float16 statistics stay finite for all inputs tried."
    first = broken[broken["varied"] == "deviation"]["input_size"].min()
    most = FORMATS["float16"].largest
    return (
        f"**float16 statistics overflow** from a deviation of {first:g} on: the numbers are far below "
        f"{units.count(most)}, "
        "their squares are not."
    )


@about_tables
def explain_scaling(histogram: pd.DataFrame, course: pd.DataFrame) -> Markdown:
    """Say which gradients float16 loses, what scaling saves, how far the scale climbs, whether losses agree."""
    lost, fewer = fact(histogram, "lost"), fact(histogram, "subnormal")
    parts = [f"{units.percent(share)} of the gradients of {kind}" for kind, share in lost.items() if share >= _LOST]
    rest = [f"{units.percent(share)} of those of {kind}" for kind, share in fewer.items() if share >= _LOST]
    first = f"float16 rounds {listed(parts)} to 0" if parts else "float16 loses less than 0.1 % of the gradients"
    digits = f" and holds {listed(rest)} with fewer digits" if rest else ""
    zero = course.groupby("way")["zero_share"].median()
    sentences = [f"{first}{digits}.", _saved(zero), _climbed(course), _losses(course)]
    return say(*sentences, small=fact(course, "small"))


def _saved(zero: pd.Series) -> str | None:
    if not {"float16", "float16 scaled"} <= set(zero.index):
        return None
    plain, scaled = zero["float16"], zero["float16 scaled"]
    compared = (
        f"Gradients of weights that are exactly 0: {units.percent(plain)} without scaling, "
        f"{units.percent(scaled)} with it"
    )
    if plain > 2 * scaled and plain > _LOST:
        return f"{compared}: **scaling saves them.**"
    return f"{compared}: scaling makes no difference for this model."


def _climbed(course: pd.DataFrame) -> str | None:
    scaled = course[course["way"] == "float16 scaled"]
    if scaled.empty:
        return None
    skipped, top = int(scaled["skipped"].sum()), scaled["scale"].max()
    power = round(math.log2(top))
    if not skipped:
        return f"The scale climbs to 2^{power} without an overflow in {len(scaled)} steps."
    return f"The scale climbs to 2^{power}; {skipped} of {len(scaled)} steps overflow, are skipped, and halve it."


def _losses(course: pd.DataFrame) -> str | None:
    last = course.groupby("way")["loss"].last()
    if "float32" not in last:
        return None
    others = last.drop("float32")
    worst = (others / last["float32"] - 1).abs().idxmax()
    share = abs(others[worst] / last["float32"] - 1)
    return f"At the end the losses differ from float32's by at most {units.percent(share)} ({worst})."
