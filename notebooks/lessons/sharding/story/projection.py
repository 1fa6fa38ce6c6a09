"""Lines through collectives, and steps projected from them → sentences: how far off, and what limits more GPUs."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.words import about_tables, listed, say, text

_CLOSE = 0.05  # a speed-up within 5 % of the report's is called the same
_POINT = 0.01  # of a single GPU's speed: a loss projected within a point is called right
_STRAIGHT = 0.2  # a line that misses no point by more is called a fit
_ENOUGH = 0.9  # of a single GPU's speed, per GPU
_REPORTED_GPUS = 8  # the last of the report's projection


@about_tables
def explain_links(fits: pd.DataFrame, small: bool) -> Markdown:
    """Return α and β of each line as a table, then whether a line fits, and whether α grows as a ring's hops do."""
    if fits.empty:
        return say("No collective was timed at two sizes.", small=small)
    lines = ["| ranks | collective | α | β | both take as long at |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row.ranks} | {row.collective} | {units.number(row.alpha_us)} µs | {units.rate(row.beta_gb_per_s)} | "
        f"{units.size(row.knee_mib * units.MIB)} |"
        for row in fits.itertuples()
    ]
    bent = [
        f"{row.collective} on {row.ranks} ranks by up to {units.percent(row.residual)}"
        for row in fits[fits["residual"] > _STRAIGHT].itertuples()
    ]
    fit = (
        f"**A line is too simple**: it misses {listed(bent)}."
        if bent
        else (f"Every time is within {units.percent(_STRAIGHT)} of its line.")
    )
    return Markdown("\n".join([*lines, "", text(say(fit, _growth(fits), small=small))]))


def _growth(fits: pd.DataFrame) -> str | None:
    """Test whether α grows as a ring's hops do, from the fewest ranks to the most."""
    alphas = fits.groupby("ranks")["alpha_us"].median()
    if len(alphas) < 2 or not alphas.iloc[0] > 0:
        return None
    first, last = alphas.index[[0, -1]]
    grown, hops = alphas[last] / alphas[first], (last - 1) / (first - 1)
    growth = f"From {first} to {last} ranks α grows {units.times(grown)}, and the ring's hops {units.times(hops)}"
    if grown < (1 - _STRAIGHT) * hops:
        return f"{growth}. **Part of α is no hop**, so scaling all of it with the hops overestimates."
    return (
        f"{growth}: more than a ring explains." if grown > (1 + _STRAIGHT) * hops else f"{growth}: α grows as a ring."
    )


@about_tables
def explain_projection(
    table: pd.DataFrame, small: bool, lines: pd.DataFrame | None = None, published: pd.DataFrame | None = None
) -> Markdown:
    """Say per strategy how right the projection is where it was measured, and where and why efficiency falls.

    `lines` are the fits that it was made with, to be said first; `published` is the report's projection.
    """
    bullets = [
        f"- {_error(STRATEGY_NAMES[strategy], rows)} {_fall(rows)}"
        for strategy, rows in table.groupby("strategy", sort=False)
    ]
    fitted = text(explain_links(lines, False)) if lines is not None else ""
    reported = _reported(table, published) if published is not None else None
    return say("\n".join([fitted, "", *bullets, "", reported or ""]), small=small)


def _error(name: str, rows: pd.DataFrame) -> str:
    known = rows[rows["error"].notna()]
    if known.empty:
        return f"**{name}** was not measured, so its projection is untested."
    lost, measured = 1 - known["efficiency"], 1 - known["efficiency"] / (1 + known["error"])
    worst = (lost - measured).abs().idxmax()
    both = (
        f"**{name}** on {known.loc[worst, 'gpus']} GPUs: projected to lose {units.percent(lost[worst])} of the speed, "
        f"measured {units.percent(measured[worst])}"
    )
    if abs(lost[worst] - measured[worst]) <= _POINT:
        return f"{both}. The projection is right to within one percentage point."
    if lost[worst] < measured[worst]:
        return f"{both}. **The projection is wrong**: the model leaves out most of the cost."
    return f"{both}. **The projection is wrong**: the cost is lower than the model says."


def _fall(rows: pd.DataFrame) -> str:
    fallen = rows[rows["efficiency"] < _ENOUGH]
    if fallen.empty:
        return f"It keeps {units.percent(rows['efficiency'].iloc[-1])} of the speed on {rows['gpus'].iloc[-1]} GPUs."
    first = fallen.iloc[0]
    latency = first["latency_ms"] / first["communication_ms"]
    cause = (
        f"latency, which is {units.percent(latency)} of the communication"
        if latency > 0.5
        else f"bandwidth: transfers are {units.percent(1 - latency)} of the communication"
    )
    return (
        f"From {first['gpus']} GPUs on it keeps less than {units.percent(_ENOUGH)}: there "
        f"{units.percent(first['efficiency'])}. The cause is {cause}.{_guess(first)}"
    )


def _guess(row: pd.Series) -> str:
    fixed = row["efficiency_at_fixed_alpha"]
    if fixed < _ENOUGH:
        return ""
    return f" This assumes that α grows with the ring's hops. **If α stays as it is, {units.percent(fixed)} remain.**"


def _reported(table: pd.DataFrame, published: pd.DataFrame) -> str | None:
    rows = table[(table["gpus"] == _REPORTED_GPUS) & table["strategy"].isin(["fsdp_grad", "fsdp_full"])]
    printed = float(published.set_index("gpus").loc[_REPORTED_GPUS, "fsdp_speedup"])
    if rows.empty:
        return None
    speedups = _REPORTED_GPUS * rows["efficiency"]
    projected = listed(
        f"{units.number(speedup)}× ({STRATEGY_NAMES[strategy]})"
        for speedup, strategy in zip(speedups, rows["strategy"], strict=True)
    )
    both = f"For FSDP on {_REPORTED_GPUS} GPUs the report projects {printed}×, and this projection {projected}"
    off = speedups / printed - 1
    if (off.abs() <= _CLOSE).all():
        return f"{both}: the same within {units.percent(_CLOSE)}."
    if (off > _CLOSE).all():
        return f"{both}: **more**, on another GPU with another batch."
    return f"{both}: **less**, on another GPU with another batch." if (off < -_CLOSE).all() else f"{both}."
