"""Published DDP and FSDP figures → sentences: what follows, what does not, and what a batch must have been."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units, words

_ALIKE = 2.0  # uses of the same GPU within this factor
_STEADY = 0.05  # savings within 5 % are called the same
_SMALL = 0.05  # a share of the step
_RESOLUTION = 0.02
_WRAPPED = {"fsdp_root": "one group", "fsdp_grad": "gradient-only sharding", "fsdp_full": "full sharding"}


def doubt_reports(
    differences: pd.DataFrame,
    samples: pd.DataFrame,
    savings: pd.DataFrame,
    traffic: pd.DataFrame,
    physics: pd.DataFrame,
    wrapped: pd.DataFrame | None = None,
) -> Markdown:
    """Say, as bullets, what the reports' batches were, which differences count, what DDP sends, what FSDP saves.

    `wrapped` adds which way of wrapping comes nearest to the printed saving.
    """
    sentences = [_use(physics), *_batches(samples), _resolved(differences), _sent(traffic), _saved(savings)]
    sentences.append(words.text(explain_wrappings(wrapped)) if wrapped is not None else "")
    return Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def _use(physics: pd.DataFrame) -> str:
    printed = physics[physics["reading"] == "together"]
    low, high = (physics.loc[at] for at in (printed["tflops"].idxmin(), printed["tflops"].idxmax()))
    least, most = units.number(low["tflops"]), units.number(high["tflops"])
    if high["tflops"] > _ALIKE * low["tflops"]:
        said = (
            f"Read as printed, one kind of GPU reaches {most} TFLOP/s in {high['report']} and {least} in "
            f'{low["report"]}: **"batch" hardly means the same in both.**'
        )
    else:
        said = f"Read as printed, all steps use a GPU alike: {least} to {most} TFLOP/s."
    for row in physics[physics["verdict"] == "impossible"].to_dict("records"):
        taken = "as printed" if row["reading"] == "together" else f"with all {row['global_batch']} on each GPU"
        said += (
            f" {row['report']}'s step {taken} is impossible in float32: {units.number(row['tflops'])} of "
            f"{units.number(row['limit'])} TFLOP/s."
        )
    return said


def _batches(samples: pd.DataFrame) -> list[str]:
    others = samples[samples["report"] != fact(samples, "reference")]
    return [_batch(report, own, fact(samples, "reference")) for report, own in others.groupby("report", sort=False)]


def _batch(report: str, own: pd.DataFrame, reference: str) -> str:
    ddp = own[own["strategy"] == "ddp"]
    printed = words.listed(f"{value:g}" for value in ddp["printed_per_gpu"])
    implied = words.listed(units.number(value, 2) for value in ddp["implied_per_gpu"])
    rates, processed = (
        words.listed(map(units.number, ddp[name])) for name in ("samples_per_second", "each_samples_per_second")
    )
    if (own["fits"] == "together").all():
        return f"{report}'s steps have the time and the memory of its batch shared by {ddp['gpus'].iloc[0]} GPUs."
    if (own["fits"] != "each").any():
        return f"{report}'s steps fit neither its batch shared by the GPUs nor all of it on each."
    each, together, known = (
        units.number(ddp[f"{name}_mb_per_sample"].iloc[0]) for name in ("each", "together", "reference")
    )
    return (
        f"As printed, {report} has {printed} samples a GPU; its steps take the time of {implied} in {reference}. A "
        f"sample takes {each} MB if each GPU had the whole batch, {together} MB if not; in {reference} it is {known} "
        f"MB. **The batch was each GPU's**: DDP processed {processed} samples/s, not {rates}."
    )


def _resolved(table: pd.DataFrame) -> str:
    found, lost = (
        words.listed(map(_difference, rows.to_dict("records")))
        for rows in (table[table["resolved"]], table[~table["resolved"]])
    )
    if not table["resolved"].any():
        return f"No difference between FSDP and DDP is resolved: FSDP is {lost}."
    said = f"Resolved: FSDP is {found}."
    if not table["resolved"].all():
        said += f" **Not resolved**: {lost}."
    return f"{said} Three seeds on one machine and day tell nothing of another."


def _difference(row: dict) -> str:
    direction = "slower" if row["difference"] < 0 else "faster"
    return (
        f"{units.percent(abs(row['difference']))} {direction} in {row['report']} at {row['global_batch']} "
        f"({units.number(row['standard_errors'], 2)} standard errors)"
    )


def _sent(table: pd.DataFrame) -> str:
    ddp, fsdp = (table[table["strategy"] == name] for name in ("ddp", "fsdp_full"))
    most = ddp.loc[ddp["share_of_step"].idxmax()]
    if most["sent_mb"] == 0:
        return '"No inter-GPU communication" in DDP holds: one GPU has nobody to send to.'
    said = (
        '"No inter-GPU communication" in DDP **does not follow**: in a ring each GPU sends '
        f"{units.number(most['sent_mb'])} MB a step, at NVLink's rate at least {units.seconds(most['least_ms'] / 1e3)} "
        f"or {units.percent(most['share_of_step'])} of the step: "
    )
    said += "little, not nothing." if most["share_of_step"] < _SMALL else "**not even little.**"
    ratio = fsdp["sent_mb"].max() / most["sent_mb"]
    return f"{said} FSDP, block by block, sends {units.times(ratio)} as much." if ratio > 1 else said


def _saved(table: pd.DataFrame) -> str:
    beyond = table[table["share_of_most"] > 1 + _RESOLUTION]
    if not beyond.empty:
        row = beyond.iloc[0]
        return (
            f"**{row['report']} at {row['global_batch']} saves {units.number(row['saving_mib'])} MiB, more than "
            f"sharding can** ({units.number(row['most_mib'])} MiB): something else changed, too."
        )
    if (table["saving_mib"] <= 2 * table["standard_error_mib"]).any():
        return "That FSDP saves memory is not resolved in every case."
    least, most = table["saving_mib"].min(), table["saving_mib"].max()
    said = (
        f"FSDP saves {units.number(least)} to {units.number(most)} MiB, "
        f"{units.percent(table['share_of_most'].max())} of what sharding could "
        f"({units.number(table['most_mib'].max())} MiB)."
    )
    small, large = table["saving"].min(), table["saving"].max()
    if most / least - 1 <= _STEADY and large / small > _ALIKE:
        said += (
            f" That this is {units.percent(small)} of one peak and {units.percent(large)} of another **tells of the "
            "batch, not of sharding**: activations are not sharded."
        )
    return said


def explain_wrappings(table: pd.DataFrame) -> Markdown:
    """Say between which ways of wrapping the printed saving lies, or which one it is."""
    printed, ways = table["printed_mib"].iloc[0], table.sort_values("predicted_mib")
    near = table.loc[table["apart_mib"].abs().idxmin()]
    saved = f"the printed {units.number(printed)} MiB"
    if abs(near["apart_mib"]) <= _STEADY * printed:
        return Markdown(f"On {fact(table, 'ranks')} ranks {saved} are what {_WRAPPED[near['strategy']]} should save.")
    below, above = (ways[ways["predicted_mib"] < printed].tail(1), ways[ways["predicted_mib"] > printed].head(1))
    sides = [
        f"{_WRAPPED[row.strategy]} ({units.number(row.predicted_mib)})"
        for side in (below, above)
        for row in side.itertuples()
    ]
    where = "between" if len(sides) == 2 else "below" if below.empty else "above"
    return Markdown(f"On {fact(table, 'ranks')} ranks {saved} lie {where} what {words.listed(sides)} should save.")
