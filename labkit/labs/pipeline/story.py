"""Tables of lab 03 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, resolved, say

_NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "zero_bubble": "zero bubble"}
_CLOSE = 0.05  # a prediction within 5 % is called right
_NEAR_LINEAR = 0.9  # of the limit
_FEWER = {  # what is wrong with fewer micro-batches than the best count
    "streaming": "fewer are slower, too",
    "fenced": "fewer leave a larger bubble",
    "training": "fewer leave a larger bubble",
}


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
            sentences.append(f"{mode.capitalize()}: whether it is faster {span} is not resolved by these data.")
            continue
        verdict = "near" if last["share_of_limit"] >= _NEAR_LINEAR else "well below"
        if last["share_of_limit"] > 1.02:
            verdict = "**above**"
        sentences.append(
            f"{mode.capitalize()}: {units.number(last['speedup'])}× {span}, {verdict} the "
            f"{units.number(last['limit'])}× that the mode allows."
        )
    return say(*sentences or ["One number of GPUs says nothing about adding more."], small=fact(table, "small"))


def explain_micro_batches(table: pd.DataFrame) -> Markdown:
    """Say, per mode, which numbers of micro-batches were best, and whether more of them only hurt."""
    sentences, best_counts = [], {}
    for mode, rows in table[table["samples_per_s"].notna()].groupby("mode", sort=False):
        rows = rows.set_index("micro_batches").sort_index()
        if len(rows) < 2:
            continue
        count = rows["samples_per_s"].idxmax()
        best, tied = rows.loc[count], [n for n in rows.index if n != count and not _apart(rows.loc[count], rows.loc[n])]
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
        claim = "That more micro-batches only hurt, as one report has it, holds"
        sentences.append(f"{claim} for its stream{since}, not for training.")
    return say(*sentences or ["One count of micro-batches cannot tell which is best."], small=fact(table, "small"))


def _apart(row: pd.Series, other: pd.Series) -> bool:
    rates, spreads = ([r[name] for r in (row, other)] for name in ("samples_per_s", "spread_samples_per_s"))
    return resolved(*rates, *spreads)


def explain_bubbles(table: pd.DataFrame) -> Markdown:
    """Say for which schedules simulation met measurement, which schedule had the smallest bubble, which was fastest."""
    right = table[table["residual"].abs() <= _CLOSE]
    names = [
        f"{_NAMES[row.schedule]} ({units.percent(abs(row.residual))} off)"
        for row in table[table["residual"].abs() > _CLOSE].itertuples()
    ]
    met = f"The simulator is within {units.percent(_CLOSE)} of the measured step in {len(right)} of {len(table)} cases."
    missed = f"Not so for {listed(names)}." if names else None
    least = table.loc[table["bubble_measured"].idxmin()]
    fastest = table.loc[table["step_ms"].idxmin()]
    small = (
        f"Smallest measured bubble: {_NAMES[least['schedule']]}, {units.percent(least['bubble_measured'])} "
        f"(formula {units.percent(least['bubble_formula'])}, simulated {units.percent(least['bubble_simulated'])})."
    )
    same = fastest["schedule"] == least["schedule"]
    fast = (
        "It is also the fastest."
        if same
        else f"**Yet {_NAMES[fastest['schedule']]} is faster**: a smaller bubble can cost more work outside it."
    )
    above = (table["bubble_measured"] > table["bubble_formula"]).sum()
    formula = (
        f"The formula is exceeded by the measurement in {above} of {len(table)}: it knows no transfers and no launches."
    )
    return say(met, missed, small, fast, formula if above else None, small=fact(table, "small"))


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


def explain_equality(table: pd.DataFrame) -> Markdown:
    """Say whether every pipeline computed what the whole model computes."""
    wrong = table[~table["equal"]]
    if wrong.empty:
        errors = table[["output_error", "loss_error", "gradient_error"]].max(axis=None)
        return say(
            f"All {len(table)} pipelines gave the whole model's outputs, loss and gradients; the largest difference is "
            f"{errors:.0e} of the largest value, rounding.",
            small=fact(table, "small"),
        )
    names = (
        f"{_NAMES[row.schedule]} {row.split} with {row.micro_batches} ({row.variant})" for row in wrong.itertuples()
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
        sentences.append(f"**{mode.capitalize()}**, over float32: {listed(gains)}.")
        shares = rows["share_of_limit"].dropna()
        if len(shares) == len(rows):
            used = [f"{name} {units.percent(share)}" for name, share in shares.items()]
            less = (shares.pct_change().dropna() < -_CLOSE).all()
            why = ": on faster cores, other work takes more of the step" if less else ""
            sentences.append(f"Of the datasheet's rate it uses {listed(used)}{why}.")
    return say(*sentences or ["Only one precision was measured here."], small=fact(table, "small"))


_SAME_MEMORY = 0.1  # memory within 10 % is called the same


def doubt_reports(claims: pd.DataFrame, rates: pd.DataFrame, sums: pd.DataFrame) -> Markdown:
    """Say which mode each published ratio can come from, what does not follow, and what rates, memory, splits tell."""
    sentences = [_claim(row) for row in claims.to_dict("records")]
    if (claims["fits"] == "streaming").any():
        sentences.append(
            "In a stream the next batch fills the bubble, whatever the number of micro-batches: **that four of them "
            "mask the bubble does not follow.**"
        )
    sentences += [_rates(rates), _memory(rates)]
    for row in sums[~sums["is_bert_base"]].itertuples():
        equals = f"; its figure is that of the run on {row.same_figure_as}" if row.same_figure_as else ""
        sentences.append(f'"{row.split}" has {row.layers} layers and cannot be a split of BERT-base\'s 12{equals}.')
    return Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def _claim(row: dict) -> str:
    limits = f"fenced {units.number(row['fenced_limit'])}×, streaming {units.number(row['streaming_limit'])}×"
    printed = f"{row['report']}, {row['claim']}: {units.number(row['printed'], 4)}×"
    if row["printed"] < 1 and " over " not in row["claim"]:
        return f"{printed}: more GPUs made it slower, which no pipeline's arithmetic gives."
    if row["fits"] == "none":
        return f"{printed} fits no mode ({limits})."
    if row["fits"] == "streaming":
        return f"{printed} **fits a stream of forward passes only** ({limits})."
    return f"{printed} fits {row['fits']} ({limits})."


def _rates(table: pd.DataFrame) -> str | None:
    known = table[table["times_ours"].notna()]
    if known.empty:
        return None
    worst = known.loc[known["times_ours"].idxmin()]
    if worst["times_ours"] >= 0.1:
        return "All published rates are within a factor of ten of the recorded ones."
    return (
        f"{worst['report']} prints {units.number(worst['samples_per_second'])} samples/s on {worst['gpus']} GPUs, "
        f"**{units.times(1 / worst['times_ours'])} below** the recorded stream: "
        f"{units.seconds(worst['missing_seconds'])} a step that no stage accounts for, as when "
        "start-up runs inside the clock."
    )


def _memory(table: pd.DataFrame) -> str | None:
    like = table[(table["memory_over_training"] - 1).abs() <= _SAME_MEMORY]
    if like.empty or not (like["memory_over_streaming"] > 2).all():
        return None
    report, fewest = like["report"].iloc[0], units.times(like["memory_over_streaming"].min())
    return (
        f"{report}'s memory is that of our training, at least {fewest} that of our stream: **its forward passes seem "
        "to have kept every activation for a backward that never came** (as without `no_grad`)."
    )
