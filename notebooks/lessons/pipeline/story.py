"""Tables of lab 03 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, resolved, say, with_table
from lessons.pipeline.theory.schedules import SCHEDULE_NAMES

_CLOSE = 0.05  # a prediction within 5 % is called right
_NEAR_LINEAR = 0.9  # of the limit
_FEWER = {  # what is wrong with fewer micro-batches than the best count
    "streaming": "fewer are slower, too",
    "fenced": "fewer leave a larger bubble",
    "training": "fewer leave a larger bubble",
}


@about_tables
def explain_gpus(table: pd.DataFrame) -> Markdown:
    """Say, per mode, what more GPUs brought and how near that is to what the mode allows."""
    sentences = []
    for mode, rows in table.groupby("mode", sort=False):
        first, last = rows.iloc[0], rows.iloc[-1]
        if len(rows) < 2 or not last["speedup"] > 0:
            continue
        spreads = first["spread_samples_per_s"], last["spread_samples_per_s"]
        span = f"from {first['ranks']} to {last['ranks']} GPUs"
        if not resolved(first["samples_per_s"], last["samples_per_s"], *spreads):
            sentences.append(f"{mode.capitalize()}: {span} the rate changes by less than the noise.")
            continue
        verdict = "near" if last["share_of_limit"] >= _NEAR_LINEAR else "well below"
        if last["share_of_limit"] > 1.02:
            verdict = "**above**"
        sentences.append(
            f"{mode.capitalize()}: {units.number(last['speedup'])}× {span}, {verdict} the "
            f"{units.number(last['limit'])}× that the mode allows."
        )
    return say(*sentences or ["Only one number of GPUs was measured."], small=fact(table, "small"))


@about_tables
def explain_micro_batches(table: pd.DataFrame) -> Markdown:
    """Say, per mode, which numbers of micro-batches were best, and whether more of them only hurt."""
    sentences, best_counts = [], {}
    for mode, rows in table[table["samples_per_s"].notna()].groupby("mode", sort=False):
        rows = rows.set_index("micro_batches").sort_index()
        if len(rows) < 2:
            continue
        count = rows["samples_per_s"].idxmax()
        best, tied = (
            rows.loc[count],
            [n for n in rows.index if n != count and not _differ(rows.loc[count], rows.loc[n])],
        )
        near = best_counts[mode] = sorted([count, *tied])
        tie = f" ({listed(tied)} {'is' if len(tied) == 1 else 'are'} within noise)" if tied else ""
        why = [_FEWER[mode]] if near[0] > rows.index[0] else []
        why += ["more make each piece smaller"] if near[-1] < rows.index[-1] else []
        reasons = f"; {', '.join(why)}" if why else ""
        rate = units.number(best["samples_per_s"])
        sentences.append(f"**{mode.capitalize()}**: best with {count}{tie}, {rate} samples/s{reasons}.")
    if {"streaming", "training"} <= set(best_counts) and best_counts["training"][0] > best_counts["streaming"][-1]:
        first = best_counts["streaming"][0]
        since = f" from {first} on" if first > table["micro_batches"].min() else ""
        sentences.append(f"In the stream more micro-batches only hurt{since}; in training they help first.")
    return say(*sentences or ["One number of micro-batches shows no best one."], small=fact(table, "small"))


def _differ(row: pd.Series, other: pd.Series) -> bool:
    rates, spreads = ([r[name] for r in (row, other)] for name in ("samples_per_s", "spread_samples_per_s"))
    return resolved(*rates, *spreads)


@about_tables
def explain_bubbles(table: pd.DataFrame) -> Markdown:
    """Say what makes up each bubble, where simulation meets measurement, and which schedule is fastest.

    The table comes first: each schedule's step, and its bubble by formula, with unequal stages, with transfers too, and
    measured.
    """
    missed = [
        f"{SCHEDULE_NAMES[row.schedule]} ({units.percent(abs(row.residual))})"
        for row in table[table["residual"].abs() > _CLOSE].itertuples()
    ]
    near = len(table) - len(missed)
    met = f"The simulated step is within {units.percent(_CLOSE)} of the measured one in {near} of {len(table)} cases."
    but = f"It misses by more for {listed(missed)}." if missed else None
    least, fastest = (table.loc[table[column].idxmin()] for column in ("bubble_measured", "step_ms"))
    fast = f"Smallest measured bubble: {SCHEDULE_NAMES[least['schedule']]}, {units.percent(least['bubble_measured'])}. "
    fast += (
        "It is also the fastest."
        if fastest["schedule"] == least["schedule"]
        else f"**Yet {SCHEDULE_NAMES[fastest['schedule']]} is faster**: a smaller bubble can cost more work outside it."
    )
    sentences = say(met, but, fast, _cause_of_gaps(table), small=fact(table, "small"))
    return with_table(_bubble_parts(table), sentences)


def _bubble_parts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the bubbles in percent, one column per effect that is added, as a reader sees them."""
    shares = {
        "formula": "bubble_formula",
        "+ unequal stages": "bubble_stages",
        "+ transfers": "bubble_simulated",
        "measured": "bubble_measured",
    }
    named = [f"{SCHEDULE_NAMES[row.schedule]}, {row.micro_batches} micro-batches" for row in table.itertuples()]
    shown = pd.DataFrame({"schedule": named, "step": [units.seconds(ms / 1e3) for ms in table["step_ms"]]})
    return shown.assign(
        **{name: [f"{100 * share:.1f} %" for share in table[column]] for name, column in shares.items()}
    )


def _cause_of_gaps(table: pd.DataFrame) -> str | None:
    """Name what adds most between formula and measurement where the measurement is larger."""
    longer = table[table["bubble_measured"] > table["bubble_formula"]]
    if longer.empty:
        return None
    steps = pd.DataFrame(
        {
            "unequal stages": longer["bubble_stages"] - longer["bubble_formula"],
            "transfers": longer["bubble_simulated"] - longer["bubble_stages"],
            "what the simulator leaves out": longer["bubble_measured"] - longer["bubble_simulated"],
        }
    )
    causes = steps.idxmax(axis=1)
    named = [
        f"{cause} for {listed(SCHEDULE_NAMES[name] for name in longer.loc[causes == cause, 'schedule'])}"
        for cause in steps
        if (causes == cause).any()
    ]
    return f"Most of the gap between formula and measurement comes from {listed(named)}."


@about_tables
def explain_splits(
    table: pd.DataFrame, ranked: pd.DataFrame | None = None, balance: pd.DataFrame | None = None
) -> Markdown:
    """Say how much slower each uneven split is, whether its forecast came true, and which of all splits is best.

    `balance` adds how far the ranks differ in stage time and memory (standard deviation over mean).
    """
    sentences = []
    for row in table[table["split"] != fact(table, "even")].itertuples():
        slower = f"{units.number(row.ratio)}× the step of {fact(table, 'even')}"
        true = "came true" if abs(row.error) <= _CLOSE else "**did not come true**"
        sentences.append(
            f"{row.split} takes {slower}; the forecast, {units.number(row.forecast_ratio)}×, {true} "
            f"(off by {units.percent(abs(row.error))})."
        )
    if balance is not None:
        rows = balance[balance["mode"] == table["mode"].iloc[0]].set_index("split")
        apart = [
            f"{split} by {units.percent(row['stage_time_cv'])} and {units.percent(row['memory_cv'])}"
            for split, row in rows[rows["memory_cv"].notna()].iterrows()
        ]
        if apart:
            sentences.append(f"Ranks differ in stage time and in memory (std over mean): {listed(apart)}.")
    if ranked is not None:
        first, last = ranked.iloc[0], ranked.iloc[-1]
        best = f"Of all {len(ranked)} splits the search finds {first['split']} fastest"
        even = ", the even one" if first["split"] == fact(table, "even") else f", not {fact(table, 'even')}"
        sentences.append(f"{best}{even}; the worst, {last['split']}, takes {units.times(last['times_best'])} as long.")
    return say(*sentences or ["Only one split was measured."], small=fact(table, "small"))


@about_tables
def explain_equality(table: pd.DataFrame) -> Markdown:
    """Say whether every pipeline computed what the whole model computes."""
    wrong = table[~table["equal"]]
    if wrong.empty:
        errors = table[["output_error", "loss_error", "gradient_error"]].max(axis=None)
        return say(
            f"All {len(table)} pipelines gave the whole model's outputs, loss and gradients. The largest difference is "
            f"{errors:.0e} of the largest value, which is rounding.",
            small=fact(table, "small"),
        )
    names = (
        f"{SCHEDULE_NAMES[row.schedule]} {row.split} with {row.micro_batches} ({row.variant})"
        for row in wrong.itertuples()
    )
    return say(
        f"**{len(wrong)} of {len(table)} pipelines computed something else**: {listed(names)}.",
        small=fact(table, "small"),
    )


def explain_precisions(table: pd.DataFrame) -> Markdown:
    """Say what the tensor cores brought in each mode, and how much of their datasheet's rate is left unused."""
    sentences = []
    for mode, rows in table.groupby("mode", sort=False):
        rows = rows.set_index("precision")
        if "float32" not in rows.index or len(rows) < 2:
            continue
        base, gains = rows.loc["float32"], []
        for name, row in rows.drop("float32").iterrows():
            spreads = row["spread_samples_per_s"], base["spread_samples_per_s"]
            clear = resolved(row["samples_per_s"], base["samples_per_s"], *spreads)
            gains.append(
                f"{name} {units.times(row['samples_per_s'] / base['samples_per_s'])}"
                if clear
                else f"{name} is within noise"
            )
        sentences.append(f"**{mode.capitalize()}**, times as fast as float32: {listed(gains)}.")
        shares = rows["share_of_limit"].dropna()
        if len(shares) == len(rows):
            used = [f"{name} {units.percent(share)}" for name, share in shares.items()]
            less = (shares.pct_change().dropna() < -_CLOSE).all()
            why = ": on faster cores, other work takes more of the step" if less else ""
            sentences.append(f"Share of the datasheet's rate: {listed(used)}{why}.")
    return say(*sentences or ["Only one precision was measured here."], small=fact(table, "small"))


def explain_as_reported(table: pd.DataFrame) -> Markdown:
    """Say, per mode, what dropout and attention product by product cost: rate, and memory per GPU where it is known."""
    sentences = []
    for mode, rows in table[table["samples_per_s"].notna()].groupby("mode", sort=False):
        rows = rows.set_index(["attention", rows["dropout"] > 0])
        if not {("fused", False), ("plain", True)} <= set(rows.index):
            continue
        usual, reported = rows.loc[("fused", False)], rows.loc[("plain", True)]
        cost = f"{units.percent(reported['samples_per_s'] / usual['samples_per_s'])} of the rate"
        if not _differ(usual, reported):
            cost = "the same rate, within noise"
        if reported["mib_per_gpu"] > 0:
            cost += f", and {units.times(reported['mib_per_gpu'] / usual['mib_per_gpu'])} the memory per GPU"
        sentences.append(f"**{mode.capitalize()}**: {cost}.")
    compared = "Plain attention with dropout, compared with fused attention without dropout:"
    sentences = [compared, *sentences] if sentences else ["Not all settings were measured, so none are compared."]
    return with_table(_by_model(table), say(*sentences, small=fact(table, "small")), digits=4)


def _by_model(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per attention and dropout: each mode's rate and, where it is known, its memory per GPU."""
    shown = table[["attention", "dropout"]].drop_duplicates()
    for mode, rows in table.groupby("mode", sort=False):
        for column, unit in (("samples_per_s", "samples/s"), ("mib_per_gpu", "MiB per GPU")):
            if rows[column].notna().any():
                found = rows.rename(columns={column: f"{mode}, {unit}"})[["attention", "dropout", f"{mode}, {unit}"]]
                shown = shown.merge(found, on=["attention", "dropout"], how="left")
    return shown.assign(dropout=shown["dropout"].map("{:g}".format))
