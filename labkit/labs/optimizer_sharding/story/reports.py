"""The published figures of a sharded optimizer → sentences: is the saving possible, is the speed?"""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units


def doubt_report(report: pd.DataFrame) -> Markdown:
    """Say, as three bullets, what the printed saving can be made of, in which unit, and whether the time is plausible.

    Takes the one row of `tables.read_report`.
    """
    row = report.iloc[0]
    return Markdown("\n".join(f"- {sentence}" for sentence in (_saving(row), _unit(row), _time(row))))


def _saving(row: pd.Series) -> str:
    printed = f"Printed is a saving of {units.number(row['saving_gb'])} GB (rounding allows {_range(row)})"
    states = f"half of AdamW's states are {units.number(row['states_gb'])} GB"
    if row["low_gb"] <= row["states_gb"] <= row["high_gb"]:
        return f"{printed}; {states}: **that is it.**"
    model = (
        f"It would take a model of {units.number(row['needed_parameters'] / 1e9)} B parameters, not "
        f"{units.number(row['elements'] / 1e9)} B, for states to save as much."
    )
    both = f"With the temporary square roots of torch's many kernels it is {units.number(row['both_gb'])} GB"
    if row["low_gb"] - 0.05 <= row["both_gb"] <= row["high_gb"] + 0.05:
        edge = ", at the edge of what rounding allows" if not row["low_gb"] + 0.05 < row["both_gb"] else ""
        return f"{printed}; {states}, so **states alone do not explain it**. {model} {both}{edge}: **that can be it.**"
    return f"{printed}; {states}. {model} {both}: **that does not explain it, either.**"


def _range(row: pd.Series) -> str:
    return f"{units.number(row['low_gb'])} to {units.number(row['high_gb'])}"


def _unit(row: pd.Series) -> str:
    if row["low_gb"] <= row["both_gib"] <= row["high_gb"]:
        return "If its GB are 2^30 bytes, that saving fits, too: the unit is not told."
    return (
        f"If its GB were 2^30 bytes, the saving of states and temporaries would be "
        f"{units.number(row['both_gib'])}: **then it does not fit**, so either they are "
        "10^9 bytes or something else shrank."
    )


def _time(row: pd.Series) -> str:
    many = (row["update_saved_ms"] - row["broadcast_ms"], row["update_saved_ms"] - row["gather_ms"])
    one = row["fused_saved_ms"] - row["gather_ms"]
    with_one = f"{units.number(one)} with one" if one >= 0.05 else "nothing with one"
    said = (
        f"Its step is {units.number(row['faster_ms'])} ms shorter, though parameters are sent in addition. At the "
        f"datasheet's rates half an update spares {units.number(row['update_saved_ms'])} ms with many kernels, "
        f"{units.number(row['fused_saved_ms'])} with one; sending takes {units.number(row['gather_ms'])} gathered, "
        f"{units.number(row['broadcast_ms'])} broadcast in turn."
    )
    if row["faster_ms"] <= 0:
        return f"{said} **It is no shorter.**"
    if row["faster_ms"] <= one:
        return f"{said} **Either kernel can gain that.**"
    if row["faster_ms"] <= many[1]:
        return (
            f"{said} So at most {units.number(many[0])} to {units.number(many[1])} ms are gained with many "
            f"kernels, {with_one}: **plausible, if many kernels ran.**"
        )
    return f"{said} **More is gained than the update can spare.**"
