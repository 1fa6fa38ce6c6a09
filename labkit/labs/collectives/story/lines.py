"""Fitted lines → sentences: where one line does not fit, NCCL beside gloo, how an all-reduce grows with the ranks."""

from __future__ import annotations

from math import log

import pandas as pd
from IPython.display import Markdown

from labkit.labs.collectives.story.rates import CLOCK, COLLECTIVE, NAMES, by_backend, paragraphs, us, widest
from labkit.labs.collectives.theory.volume import bus_factor, hops
from labkit.ui import units
from labkit.ui.words import listed, resolved, say

GOOD, EXACT = 0.1, 0.001  # a line that is nowhere further off fits; nearer than that nobody asks
BEYOND = 1.25  # times as much as the ring's larger term
SAME = ("backend", "collective", "ranks", "bytes")
MANY = 8  # ranks that the lines foretell
PROTOCOLS = (
    "NCCL changes its protocol with the size (LL, LL128, Simple; ring, tree or switch), each with an α and a β of its "
    "own, and a line has but one of each"
)


def explain_fit(residuals: pd.DataFrame, fits: pd.DataFrame, table: pd.DataFrame) -> Markdown:
    """Say α, β and the knee of each backend's all-reduce, where and by how much the line is off, and why.

    `table` has the same run's bandwidths by all clocks: whether the host's launching alone explains a miss.
    """
    rows = by_backend(widest(residuals))
    return paragraphs(
        [(_line(_chosen(own), fits, table, backend), _others(own)) for backend, own in rows],
        small=residuals.attrs["small"],
    )


def _chosen(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["collective"] == COLLECTIVE]


def _line(own: pd.DataFrame, fits: pd.DataFrame, table: pd.DataFrame, backend: str) -> str:
    ranks = own["ranks"].max()
    chosen = fits[(fits["backend"] == own["backend"].iloc[0]) & (fits["ranks"] == ranks)]
    line, worst = _chosen(chosen).iloc[0], own.loc[own["residual"].abs().idxmax()]
    said = (
        f"**{backend}'s all-reduce**, {ranks} ranks: α = {us(line['alpha_us'])} a call ({us(line['hop_us'])} for "
        f"each of {line['hops']} hops), β = {units.rate(line['beta_gb_per_s'])}, knee at "
        f"{units.size(line['knee_bytes'])}."
    )
    off = units.percent(max(abs(worst["residual"]), EXACT))
    if abs(worst["residual"]) <= GOOD:
        return f"{said} One line fits every size to within {off}."
    side = "too short" if worst["residual"] < 0 else "too long"
    why = _why(worst, table)
    return f"{said} **One line does not fit**: at {units.size(worst['bytes'])} it is {off} {side}{why}."


def _why(worst: pd.Series, table: pd.DataFrame) -> str:
    """Give the cause of the largest miss: the host, where the call replayed is shorter by more than that."""
    if worst["backend"] != "nccl":
        return ""
    same = (table[[*SAME]] == worst[[*SAME]]).all(axis=1)
    alone = table.loc[same & (table["clock"] == "captured"), "median_us"]
    if len(alone) and worst["median_us"] - alone.iloc[0] > abs(worst["fitted_us"] - worst["median_us"]):
        return f". There **the host sets the time**: replayed from a CUDA graph the call takes {us(alone.iloc[0])}"
    return f": {PROTOCOLS}"


def _others(own: pd.DataFrame) -> str | None:
    """Say which of a backend's other collectives have a line that fits."""
    rows = own[own["collective"] != COLLECTIVE]
    worst = rows["residual"].abs().groupby(rows["collective"], sort=False).max()
    good = list(worst.index[worst <= GOOD])
    if worst.empty:
        return None
    which = {0: "none", len(worst): "all"}.get(len(good), f"only {listed(good)}")
    return f"Of the {len(worst)} other collectives {which} fit a line to within {units.percent(GOOD)}."


def explain_backends(table: pd.DataFrame) -> Markdown:
    """Say how many times as fast as gloo NCCL is at the smallest and the largest message that both moved."""
    rows = _chosen(widest(table[table["clock"] == CLOCK]))
    pair = [rows[rows["backend"] == name].set_index("bytes") for name in NAMES]
    both = sorted(set(pair[0].index) & set(pair[1].index))
    if not both:
        (name, _), *_ = by_backend(rows)
        return say(f"Only {name} was measured: the two need GPUs to meet.", small=table.attrs["small"])
    said = [_compared(*(own.loc[size] for own in pair), size) for size in dict.fromkeys((both[0], both[-1]))]
    where = "gloo's tensors lie in host memory and go through the CPU; NCCL's never leave the GPUs and their links."
    return say(f"All-reduce, {listed(said)}. {where}", small=table.attrs["small"])


def _compared(nccl: pd.Series, gloo: pd.Series, size: int) -> str:
    at = f"at {units.size(size)}"
    if not resolved(nccl["median_us"], gloo["median_us"], nccl["spread_us"], gloo["spread_us"]):
        return f"{at} which backend is faster is not resolved by these data"
    fast, slow, name = (nccl, gloo, "NCCL") if nccl["median_us"] < gloo["median_us"] else (gloo, nccl, "**gloo**")
    ratio = units.times(slow["median_us"] / fast["median_us"])
    return f"{at} {name} is {ratio} as fast ({us(fast['median_us'])} against {us(slow['median_us'])})"


def explain_growth(table: pd.DataFrame, fits: pd.DataFrame) -> Markdown:
    """Say how many times as long the smallest and the largest all-reduce take on more ranks, beside a ring's terms.

    Where one number of ranks was timed, what its line foretells for more.
    """
    rows = _chosen(table[table["clock"] == CLOCK].dropna(subset="median_us"))
    sentences = [
        _grown(own, backend) if own["ranks"].min() < own["ranks"].max() else _foretold(own, _chosen(fits), backend)
        for backend, own in by_backend(rows)
    ]
    return say(*sentences, small=table.attrs["small"])


def _grown(own: pd.DataFrame, backend: str) -> str:
    few, many = own["ranks"].min(), own["ranks"].max()
    terms = {"latency": hops(COLLECTIVE, many) / hops(COLLECTIVE, few),
             "bandwidth": bus_factor(COLLECTIVE, many) / bus_factor(COLLECTIVE, few)}  # fmt: skip
    said = [_times(own[own["bytes"] == pick(own["bytes"])].set_index("ranks"), few, many, terms) for pick in (min, max)]
    ring = listed(f"{units.times(value)} by {term}" for term, value in terms.items())
    return f"**{backend}**, from {few} to {many} ranks: {listed(said)}. A ring would grow {ring}."


def _times(at: pd.DataFrame, few: int, many: int, terms: dict[str, float]) -> str:
    """Say how one message's time grows, and which of the ring's terms that is nearer to."""
    name = units.size(at["bytes"].iloc[0])
    if not {few, many} <= set(at.index):
        return f"{name} was not timed at both"
    a, b = at.loc[few], at.loc[many]
    if not resolved(a["median_us"], b["median_us"], a["spread_us"], b["spread_us"]):
        return f"whether {name} takes longer is not resolved by these data"
    found = b["median_us"] / a["median_us"]
    if found > BEYOND * max(terms.values()):
        return f"{name} takes {units.times(found)} the time, **more than either term of a ring**"
    near = min(terms, key=lambda term: abs(log(terms[term] / found)))
    return f"{name} takes {units.times(found)} the time, nearer to **{near}**"


def _foretold(own: pd.DataFrame, fits: pd.DataFrame, backend: str) -> str | None:
    ranks = own["ranks"].max()
    for line in fits[(fits["backend"] == own["backend"].iloc[0]) & (fits["ranks"] == ranks)].itertuples():
        sizes = (own["bytes"].min(), own["bytes"].max())
        small, large = (_ring_us(line, size, MANY) / _ring_us(line, size, ranks) for size in sizes)
        said = (
            f"**{backend}** was timed with {ranks} ranks only. By its line a ring of {MANY} would take "
            f"{units.times(small)} the time for {units.size(sizes[0])} and {units.times(large)} for "
            f"{units.size(sizes[1])}"
        )
        return (
            f"{said}: **hops are the small message's cost.**" if small > 1.5 * large else f"{said}: both pay for hops."
        )
    return None


def _ring_us(line, size: int, ranks: int) -> float:
    return hops(COLLECTIVE, ranks) * line.hop_us + bus_factor(COLLECTIVE, ranks) * size / line.beta_gb_per_s / 1e3
