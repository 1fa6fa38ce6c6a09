"""Lines through collectives, and steps projected from them → sentences: how far off, and what limits more GPUs."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.words import listed, say, text

_CLOSE = 0.05  # a speed-up within 5 % of the report's is called the same
_POINT = 0.01  # of a single GPU's speed: a loss projected within a point is called right
_STRAIGHT = 0.2  # a line that misses no point by more is called a fit
_ENOUGH = 0.9  # of a single GPU's speed, a GPU
_REPORTED_GPUS, _REPORTED_SPEEDUP = 8, 7.2  # what one report projects for FSDP


def explain_links(fits: pd.DataFrame, small: bool) -> Markdown:
    """Say what a call costs before its bytes move, at which rate they move, and whether a line says it all."""
    sentences = []
    for ranks, rows in fits.groupby("ranks"):
        parts = [
            f"{row.collective} {units.number(row.alpha_us)} µs and {units.rate(row.beta_gb_per_s)} (equal at "
            f"{units.size(row.knee_mib * units.MIB)})"
            for row in rows.itertuples()
        ]
        sentences.append(f"**{ranks} ranks**, α and β: {listed(parts)}.")
        bent = [
            f"{row.collective} by up to {units.percent(row.residual)}"
            for row in rows[rows["residual"] > _STRAIGHT].itertuples()
        ]
        within = f"No point is more than {units.percent(_STRAIGHT)} off its line."
        sentences.append(f"**A line is too simple** for {listed(bent)}." if bent else within)
    return say(*sentences or ["No collective was timed at two sizes."], _growth(fits), small=small)


def _growth(fits: pd.DataFrame) -> str | None:
    """Test whether α grows as a ring's hops do, from the fewest ranks to the most."""
    alphas = fits.groupby("ranks")["alpha_us"].median()
    if len(alphas) < 2 or not alphas.iloc[0] > 0:
        return None
    first, last = alphas.index[[0, -1]]
    grown, hops = alphas[last] / alphas[first], (last - 1) / (first - 1)
    said = f"From {first} to {last} ranks α grows {units.times(grown)}, the ring's hops {units.times(hops)}"
    if grown < (1 - _STRAIGHT) * hops:
        return f"{said}: **part of it is no hop**, and scaled with the hops it is overestimated."
    return f"{said}: more than a ring explains." if grown > (1 + _STRAIGHT) * hops else f"{said}: α is the ring's."


def explain_projection(table: pd.DataFrame, small: bool, lines: pd.DataFrame | None = None) -> Markdown:
    """Say, a strategy, how right the projection is where it was measured, and where and why efficiency falls.

    `lines` are the fits that it was made with, to be said first.
    """
    fitted = text(explain_links(lines, False)) if lines is not None else ""
    bullets = [
        f"- {_error(STRATEGY_NAMES[strategy], rows)} {_fall(rows)}"
        for strategy, rows in table.groupby("strategy", sort=False)
    ]
    return say("\n".join([fitted, "", *bullets, "", _reported(table) or ""]), small=small)


def _error(strategy: str, rows: pd.DataFrame) -> str:
    name, known = STRATEGY_NAMES.get(strategy, strategy), rows[rows["error"].notna()]
    if known.empty:
        return f"**{name}** was not measured: its projection stands untested."
    lost, measured = 1 - known["efficiency"], 1 - known["efficiency"] / (1 + known["error"])
    worst = (lost - measured).abs().idxmax()
    said = (
        f"**{name}**: projected to lose {units.percent(lost[worst])} on {known.loc[worst, 'gpus']} GPUs, measured "
        f"{units.percent(measured[worst])}"
    )
    if abs(lost[worst] - measured[worst]) <= _POINT:
        return f"{said}: right within a point."
    if lost[worst] < measured[worst]:
        return f"{said}: **wrong**, most of the cost is not in the model."
    return f"{said}: **wrong**, it costs less than the model says."


def _fall(rows: pd.DataFrame) -> str:
    fallen = rows[rows["efficiency"] < _ENOUGH]
    if fallen.empty:
        return f"It keeps {units.percent(rows['efficiency'].iloc[-1])} of the speed on {rows['gpus'].iloc[-1]} GPUs."
    first = fallen.iloc[0]
    latency = first["latency_ms"] / first["communication_ms"]
    why = (
        f"latency ({units.percent(latency)} of its communication)"
        if latency > 0.5
        else f"bandwidth (transfers are {units.percent(1 - latency)} of its communication)"
    )
    return (
        f"Below {units.percent(_ENOUGH)} it falls from {first['gpus']} GPUs on ({units.percent(first['efficiency'])}), "
        f"for {why}: {units.seconds(first['exposed_ms'] / 1e3)} of it stay exposed{_guess(first)}."
    )


def _guess(row: pd.Series) -> str:
    fixed = row["efficiency_at_fixed_alpha"]
    if fixed < _ENOUGH:
        return ""
    return f" if α grows as the ring's hops; **were it to stay, {units.percent(fixed)} would be kept**"


def _reported(table: pd.DataFrame) -> str | None:
    rows = table[(table["gpus"] == _REPORTED_GPUS) & table["strategy"].isin(["fsdp_grad", "fsdp_full"])]
    if rows.empty:
        return None
    speedups = _REPORTED_GPUS * rows["efficiency"]
    ours = listed(
        f"{units.number(speedup)}× ({STRATEGY_NAMES[strategy]})"
        for speedup, strategy in zip(speedups, rows["strategy"], strict=True)
    )
    said = f"The report projects {_REPORTED_SPEEDUP}× for FSDP on {_REPORTED_GPUS} GPUs; here it would be {ours}"
    off = speedups / _REPORTED_SPEEDUP - 1
    if (off.abs() <= _CLOSE).all():
        return f"{said}: as in the report."
    if (off > _CLOSE).all():
        return f"{said}: **more**, on another GPU with another batch."
    return f"{said}: **less**, on another GPU with another batch." if (off < -_CLOSE).all() else f"{said}."
