"""The published answers → sentences: which stand, which fall, and by which mistake."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.labs.accounting.story.memory import both
from labkit.story import units
from labkit.story.words import listed

DEVICES, SHARDS, BATCH = "H100 80GB equivalents", "smallest N_FSDP under 95 GB", "compute-bound batch"


def doubt_report(answers: pd.DataFrame, mistakes: pd.DataFrame, labels: pd.DataFrame, bounds: pd.DataFrame) -> Markdown:
    """Say, as bullets, what agrees, and for each answer that differs which mistake gives just what was printed."""
    table = answers.set_index("quantity")
    right = list(table.index[table["agrees"]])
    lines = [f"The same to the digits printed: {listed(right)}." if right else "No answer agrees."]
    lines += [
        _devices(table.loc[DEVICES], labels),
        _shards(table.loc[SHARDS]),
        _batch(table.loc[BATCH], mistakes, bounds),
    ]
    return Markdown("\n".join(f"- {line}" for line in lines))


def _devices(row: pd.Series, labels: pd.DataFrame) -> str:
    if row["agrees"]:
        return f"{row['printed']:g} devices of 80 GB hold it."
    said = f"{both(labels.attrs['total_bytes'])} take {row['ours']:g} devices of 80 GB, not {row['printed']:g}"
    if not row["mistake"]:
        return f"{said}; no mistake tried gives that."
    driver = labels[labels["reading"].str.contains("driver")]
    real = f" By what its driver says it is {driver['devices'].iloc[0]}." if len(driver) else ""
    return (
        f"{said}: **GiB were divided by GB**. With the label read as GiB, the same function gives "
        f"{row['mistaken']:g}.{real}"
    )


def _shards(row: pd.Series) -> str:
    if row["agrees"]:
        return f"More than {row['printed']:g} shards are needed."
    said = f"More than {row['printed']:g} shards were asked for; {row['ours'] + 1:g} are needed below 95 GB"
    return f"{said}: **the same mistake**." if row["mistake"] else f"{said}; no mistake tried gives that."


def _batch(row: pd.Series, mistakes: pd.DataFrame, bounds: pd.DataFrame) -> str:
    each, in_all = (
        listed(
            f"{units.count(round(tokens))} ({way})"
            for way, tokens in zip(bounds["weights and activations"], bounds[column], strict=True)
        )
        for column in ("tokens_per_device", "tokens")
    )
    said = f"The batch is a least one: {each} tokens a device, {in_all} in all. "
    made = mistakes[mistakes["is_printed"]]
    if (made["mistakes"] == "none").any():
        return f"{said}The printed {row['printed']:g} is that."
    said += f"Printed is at most {row['printed']:g}, **a bound in the wrong direction**"
    if made.empty:
        return f"{said}; none of {len(mistakes)} ways to compute it gives that number."
    one = made.iloc[0]
    ways = f"one of {len(mistakes)}" if len(made) == 1 else f"{len(made)} of {len(mistakes)}"
    return (
        f"{said}. The number comes out in {ways} ways to compute it: {one['mistakes']}, sent "
        f"{one['weights and activations']}, {one['batch']}: {units.number(one['gives'], 5)}."
    )
