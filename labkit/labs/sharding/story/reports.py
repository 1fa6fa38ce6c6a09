"""The published study of GPT-2 on two GPUs → sentences: which figures agree, which cannot be, which do not follow."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units, words

_SAME = 0.02  # figures within 2 % agree
_EXACT = 0.001
_NEAR = 0.1
_ROUNDED = 0.06  # ms: what times printed with one decimal may be off
_ONE_STEP = 0.25


def doubt_report(
    *,
    model: pd.DataFrame,
    savings: pd.DataFrame,
    ranking: pd.DataFrame,
    tokens: pd.DataFrame,
    breakdown: pd.DataFrame,
    calls: pd.DataFrame,
    projection: pd.DataFrame,
    batches: pd.DataFrame,
) -> Markdown:
    """Say, as at most twelve bullets, what the report's tables are of, what they rule out, and what does not follow."""
    sentences = [
        _parameters(model),
        _line(batches, model),
        _floor(batches),
        _savings(savings),
        _ranking(ranking),
        _tokens(tokens, batches),
        _use(tokens),
        _exposed(breakdown),
        _window(breakdown, tokens, calls),
        _calls(calls, model),
        _waiting(calls),
        _projection(projection),
    ]
    return Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def _parameters(table: pd.DataFrame) -> str:
    claimed = table[table["model"] == fact(table, "claimed")].iloc[0]
    printed = f"{units.number(claimed['printed_parameters_mb'], 4)} MB of parameters"
    if claimed["matches"]:
        said = f"{printed} is {claimed['model']} in float32, as stated"
    else:
        found = words.listed(table.loc[table["matches"], "model"])
        said = f"{printed} is, in float32, **{found}**, not {claimed['model']}"
    states, peak = units.number(claimed["states_mb"]), units.number(claimed["printed_peak_mb"])
    if claimed["peak_allows"]:
        return f"{said}; a peak of {peak} MB has room for that model's states of {states}."
    return f"{said}, whose states of {states} MB make a peak of {peak} **impossible**."


def _line(batches: pd.DataFrame, model: pd.DataFrame) -> str:
    rise, start = batches["mb_per_sequence"].iloc[0], batches["states_mb"].iloc[0]
    if pd.isna(start):
        return "Too few batches are above the floor to tell states from activations."
    claimed = model[model["model"] == fact(model, "claimed")].iloc[0]
    said = f"Memory rises by {units.number(rise)} MB a sequence from {units.number(start)} MB at none: "
    fit = model[model["states_mb"] <= start * (1 + _SAME)]
    if claimed["model"] in set(fit["model"]):
        return f"{said}room for {claimed['model']}'s states."
    largest = fit.iloc[-1:]
    room = [f"room for {row.model}'s states ({units.number(row.states_mb)} MB), " for row in largest.itertuples()]
    return f"{said}{''.join(room)}**not for {claimed['model']}'s** ({units.number(claimed['states_mb'])})."


def _floor(table: pd.DataFrame) -> str:
    floor = table[table["floor"]]
    if floor.empty:
        return "Every batch prints its own memory."
    return (
        f"Batches {words.listed(floor['batch'])} print the same {units.number(floor['memory_mb'].iloc[0])} MB: a floor "
        "that something reserved, not what the model needs."
    )


def _savings(table: pd.DataFrame) -> str:
    saved = table[table["saving"] > 1]
    beyond, within = (saved[saved["verdict"] == verdict] for verdict in ("impossible", "possible"))
    parts = [
        f"{units.times(row.saving)} with {row.strategy} ({units.times(row.limit_saving)} at most)"
        for row in [*beyond.itertuples(), *within.itertuples()]
    ]
    if saved.empty:
        return "No strategy saves memory."
    if beyond.empty:
        return f"Printed savings are possible: {words.listed(parts)}."
    said = f"**Sharding cannot save** {words.listed(parts[: len(beyond)])}"
    return f"{said}; possible is {words.listed(parts[len(beyond) :])}." if len(within) else f"{said}."


def _ranking(table: pd.DataFrame) -> str:
    first, worst = table.iloc[0], table[table["called_worst"]].iloc[0]
    order = words.listed(f"{row.strategy} {units.number(row.seconds)}" for row in table.itertuples())
    if worst["strategy"] == first["strategy"]:
        said = f"{worst['strategy']}, called the worst, is the fastest in the report's own table: {order} s"
    elif worst["strategy"] == table["strategy"].iloc[-1]:
        said = f"{worst['strategy']}, called the worst, is the slowest: {order} s"
    else:
        said = f"{worst['strategy']}, called the worst, is neither fastest nor slowest: {order} s"
    if table["resolved"].any():
        return f"{said}."
    return f"{said}. Within 1 % and without a spread, **no order is resolved**."


def _tokens(table: pd.DataFrame, batches: pd.DataFrame) -> str:
    first, factors = table.iloc[0], table["factor"]
    if ((factors - 1).abs() <= _SAME).all():
        return "Printed tokens a second are those of the printed seconds, steps and batch."
    rate, computed, needed = (
        units.number(first[name]) for name in ("tokens_per_second", "computed_tokens_per_second", "sequences_per_step")
    )
    least, most = units.number(factors.min()), units.number(factors.max())
    if factors.max() / factors.min() - 1 > _SAME:
        return f"Printed tokens a second are {least} to {most} times those of the seconds, **by no one factor**."
    known = batches.loc[(batches["tokens_per_second"] / first["tokens_per_second"] - 1).abs() <= _EXACT, "batch"]
    whose = f" (batch {words.listed(known)})" if len(known) else ""
    return (
        f"{rate} tokens/s{whose} are **{least} times** the {computed} of the printed seconds, in every row alike: a "
        f"step would need {needed} sequences."
    )


def _use(table: pd.DataFrame) -> str:
    first = table.iloc[0]
    rate, seconds, small = (
        units.number(first[name]) for name in ("tflops_by_rate", "tflops_by_seconds", "small_tflops_by_rate")
    )
    share = units.percent(first["share_of_limit"])
    if first["verdict"] == "impossible":
        return f"The printed rate is **impossible** for GPT-2 Large: {rate} TFLOP/s, {share} of bfloat16's limit."
    said = f"At the printed rate GPT-2 Large does {rate} TFLOP/s ({share} of bfloat16's limit)"
    if abs(first["factor"] - 1) <= _SAME:
        return f"{said}, and so it does at the printed seconds."
    said += f", at the printed seconds {seconds}"
    if abs(first["small_tflops_by_rate"] / first["tflops_by_seconds"] - 1) <= _NEAR:
        return f"{said}. GPT-2 small at that rate does {small}: **that rate may be the small model's.**"
    return f"{said}."


def _exposed(table: pd.DataFrame) -> str:
    wrong = table[(table["sum_ms"] - table["kernel_ms"]).abs() > 2 * _ROUNDED]
    if not wrong.empty:
        return f"Idle, compute and non-compute of {words.listed(wrong['strategy'])} do not add up to the window."
    rows = table[table["exposed_ms"].notna()]
    exposed, kernels, grown = (
        words.listed(units.number(value, 2) for value in rows[f"{name}_ms"])
        for name in ("exposed", "nccl_exposed", "window_over_baseline")
    )
    if ((rows["discounted_ms"] - rows["exposed_ms"]).abs() <= _ROUNDED).all():
        said = f"Exposed {exposed} ms are non-compute × (1 − overlap), **discounted twice**"
        return f"{said}: NCCL's kernels so give {kernels}, and windows grow by {grown}."
    if ((rows["window_over_baseline_ms"] / rows["exposed_ms"] - 1).abs() <= _NEAR).all():
        return f"By the exposed {exposed} ms the windows grow over baseline."
    return f"Exposed are {exposed} ms; NCCL's kernels × (1 − overlap) give {kernels}, and windows grow by {grown}."


def _window(breakdown: pd.DataFrame, tokens: pd.DataFrame, calls: pd.DataFrame) -> str | None:
    windows = breakdown.set_index("strategy")["kernel_ms"] / 1e3
    steps = (windows / tokens.set_index("strategy")["step_seconds"]).reindex(calls["strategy"])
    if not (calls["calls"] == calls["expected_calls"]).all():
        return None
    if ((steps - 1).abs() <= _ONE_STEP).all():
        return "A profiled window lasts one timed step, and has the collectives of one."
    least, most = units.number(steps.min(), 2), units.number(steps.max(), 2)
    lasts = least if least == most else f"{least} to {most}"
    return f"Profiled windows last {lasts} timed steps, yet have the collectives of **one** forward and backward."


def _calls(table: pd.DataFrame, model: pd.DataFrame) -> str:
    counts = words.listed(f"{row.strategy} {row.calls:g}" for row in table.itertuples())
    odd = table[table["calls"] != table["expected_calls"]]
    if not odd.empty:
        expected = words.listed(f"{row.strategy} {row.expected_calls}" for row in odd.itertuples())
        return f"Collectives a step ({counts}) are not those of {fact(model, 'claimed')} ({expected})."
    said = f"Collectives ({counts}) are {words.listed(dict.fromkeys(table['models']))}'s"
    if not table["reduce_scatters"].any():
        said += "; no reduce-scatter is listed"
    return (
        f"{said}. **fsdp_grad gathers once, contrary to the text**: it keeps parameters after forward; fsdp_full "
        "gathers its blocks again in backward."
    )


def _waiting(table: pd.DataFrame) -> str | None:
    known = table.set_index("strategy")
    if not {"fsdp_full", "fsdp_grad"} <= set(known.index):
        return None
    gathered, time = (known.loc["fsdp_grad", name] / known.loc["fsdp_full", name] for name in ("total_mb", "ms"))
    said = f"fsdp_grad gathers {units.percent(gathered)} of fsdp_full's bytes in {units.times(time)} its time"
    if time > 1 > gathered:
        return f"{said}: contradictory, unless **waiting for the other rank** is counted, as NCCL's kernels do."
    return f"{said}: time goes with bytes."


def _projection(table: pd.DataFrame) -> str:
    last = table.iloc[-1]
    astray = table.loc[~table["follows"], "over_rule"].abs()
    if astray.empty:
        said = "Projected memory is what sharding 12 of 16 bytes gives"
    else:
        said = (
            f"Projected memory is {units.percent(astray.min())} to {units.percent(astray.max())} off what sharding 12 "
            "of 16 bytes gives"
        )
    lost, sent = units.percent(last["fsdp_lost"]), units.percent(last["communication"])
    said += f". On {last['gpus']:g} GPUs FSDP loses {lost} of the speed, communication takes {sent}"
    return f"{said}: **the rest is unexplained.**" if last["unexplained"] > _SAME else f"{said}."
