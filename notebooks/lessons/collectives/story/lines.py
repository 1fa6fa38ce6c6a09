"""Fitted lines → sentences: where one line does not fit, NCCL beside gloo, how an all-reduce grows with the ranks."""

from __future__ import annotations

from math import log

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, resolved, say
from lessons.collectives.story.rates import CLOCK, COLLECTIVE, NAMES, by_backend, paragraphs, us, widest
from lessons.collectives.theory import bus_factor, hops

_GOOD, _EXACT = 0.1, 0.001  # a line that is nowhere further off fits; nearer than that nobody asks
_BEYOND = 1.25  # times as much as the ring's larger term
_SAME = ("backend", "collective", "ranks", "bytes")
_LITTLE = 0.4  # of a call in flight: what is left of it without the host
_MANY = 8  # ranks that the lines predict for
_HIDDEN = "launching overlaps transfer in flight, and the line adds both; NCCL's protocols may add to the miss, too"
_UNTOLD = "the data do not say why; NCCL may change its protocol there"


@about_tables
def explain_fit(
    residuals: pd.DataFrame, fits: pd.DataFrame, table: pd.DataFrame, captured: pd.DataFrame | None = None
) -> Markdown:
    """Say α, β and the knee of each backend's all-reduce, where the line is off and why, and compare the backends.

    `table` has the same run's bandwidths by all clocks: whether the host's launching alone explains a miss. `captured`
    has the lines of that clock: NCCL's hops without the host.
    """
    lines = [
        (_line(_chosen(rows), fits, table, captured, backend), _others(rows))
        for backend, rows in by_backend(widest(residuals))
    ]
    return paragraphs([*lines, (_backends(table),)], small=fact(residuals, "small"))


def _chosen(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["collective"] == COLLECTIVE]


def _line(rows: pd.DataFrame, fits: pd.DataFrame, table: pd.DataFrame, captured, backend: str) -> str:
    ranks = rows["ranks"].max()
    line, worst = _at(fits, rows), rows.loc[rows["residual"].abs().idxmax()]
    assert line is not None, "a residual is that of a line"
    sentence = (
        f"**{backend}'s all-reduce**, {ranks} ranks: α = {us(line['alpha_us'])} per call "
        f"({_hops(line, captured, rows)}), "
        f"β = {units.rate(line['beta_gb_per_s'])}, knee at "
        f"{units.size(line['knee_bytes'])}."
    )
    largest_error = units.percent(max(abs(worst["residual"]), _EXACT))
    if abs(worst["residual"]) <= _GOOD:
        return f"{sentence} One line fits every size to within {largest_error}."
    side = "too short" if worst["residual"] < 0 else "too long"
    why = _why(worst, table)
    return f"{sentence} **One line does not fit**: at {units.size(worst['bytes'])} it is {largest_error} {side}{why}."


def _at(fits: pd.DataFrame | None, rows: pd.DataFrame) -> pd.Series | None:
    """Return the all-reduce's line of a backend with its most ranks, where there is one."""
    if fits is None:
        return None
    lines = _chosen(fits[(fits["backend"] == rows["backend"].iloc[0]) & (fits["ranks"] == rows["ranks"].max())])
    return None if lines.empty else lines.iloc[0]


def _hop(line: pd.Series, captured: pd.DataFrame | None, rows: pd.DataFrame) -> pd.Series | None:
    """Return the line whose α is of hops: NCCL's of calls that no host launches, gloo's own."""
    return line if line["backend"] != "nccl" else _at(captured, rows)


def _hops(line: pd.Series, captured: pd.DataFrame | None, rows: pd.DataFrame) -> str:
    hop = _hop(line, captured, rows)
    if hop is None:
        return "it may be mostly the host's, no hop's"
    graph = f"replayed from a CUDA graph {us(hop['alpha_us'])}: " if hop is not line else ""
    return f"{graph}{us(hop['hop_us'])} for each of {hop['hops']} hops"


def _why(worst: pd.Series, table: pd.DataFrame) -> str:
    """Return the cause of the largest miss: the host, where the call replayed is shorter by more than that."""
    if worst["backend"] != "nccl":
        return ""
    same_setting = (table[[*_SAME]] == worst[[*_SAME]]).all(axis=1)
    replayed_us = table.loc[same_setting & (table["clock"] == "captured"), "median_us"]
    if len(replayed_us) and worst["median_us"] - replayed_us.iloc[0] > abs(worst["fitted_us"] - worst["median_us"]):
        return (
            f". There **the host sets the time**: replayed from a CUDA graph the call takes {us(replayed_us.iloc[0])}"
        )
    return f": {_HIDDEN if worst['residual'] > 0 else _UNTOLD}"


def _others(rows: pd.DataFrame) -> str | None:
    """Say which of a backend's other collectives have a line that fits."""
    others = rows[rows["collective"] != COLLECTIVE]
    worst = others["residual"].abs().groupby(others["collective"], sort=False).max()
    good = list(worst.index[worst <= _GOOD])
    if worst.empty:
        return None
    which = {0: "none", len(worst): "all"}.get(len(good), f"only {listed(good)}")
    return f"Of the {len(worst)} other collectives {which} fit a line to within {units.percent(_GOOD)}."


def _backends(table: pd.DataFrame) -> str:
    """Say how many times as fast as gloo NCCL is at the smallest and the largest message that both moved."""
    rows = _chosen(widest(table[table["clock"] == CLOCK]))
    nccl, gloo = (rows[rows["backend"] == name].set_index("bytes") for name in NAMES)
    sizes = sorted(set(nccl.index) & set(gloo.index))
    if not sizes:
        return f"Only {by_backend(rows)[0][0]} was measured: comparing the backends needs GPUs."
    parts = [_compared(nccl.loc[size], gloo.loc[size], size) for size in dict.fromkeys((sizes[0], sizes[-1]))]
    where = "gloo's tensors lie in host memory and go through the CPU; NCCL's never leave the GPUs and their links."
    return f"**NCCL against gloo**, all-reduce: {listed(parts)}. {where}"


def _compared(nccl: pd.Series, gloo: pd.Series, size: int) -> str:
    at = f"at {units.size(size)}"
    if not resolved(nccl["median_us"], gloo["median_us"], nccl["spread_us"], gloo["spread_us"]):
        return f"{at} the two backends differ by no more than noise"
    fast, slow, name = (nccl, gloo, "NCCL") if nccl["median_us"] < gloo["median_us"] else (gloo, nccl, "**gloo**")
    ratio = units.times(slow["median_us"] / fast["median_us"])
    return f"{at} {name} is {ratio} as fast ({us(fast['median_us'])} against {us(slow['median_us'])})"


@about_tables
def explain_growth(table: pd.DataFrame, fits: pd.DataFrame, captured: pd.DataFrame | None = None) -> Markdown:
    """Say how many times as long the smallest and the largest all-reduce take on more ranks, beside a ring's terms.

    Where one number of ranks was timed, what its line predicts for more; NCCL's with the hops of `captured` lines.
    """
    all_reduces = _chosen(table[table["clock"] == CLOCK].dropna(subset="median_us"))
    replayed = _chosen(table[table["clock"] == "captured"].dropna(subset="median_us"))
    sentences = [
        _grown(rows, backend, replayed[replayed["backend"] == rows["backend"].iloc[0]])
        if rows["ranks"].min() < rows["ranks"].max()
        else _predicted(rows, fits, captured, backend)
        for backend, rows in by_backend(all_reduces)
    ]
    return say(*sentences, small=fact(table, "small"))


def _grown(rows: pd.DataFrame, backend: str, replayed: pd.DataFrame) -> str:
    few, many = rows["ranks"].min(), rows["ranks"].max()
    terms = {
        "latency": hops(COLLECTIVE, many) / hops(COLLECTIVE, few),
        "bandwidth": bus_factor(COLLECTIVE, many) / bus_factor(COLLECTIVE, few),
    }
    by_ranks = [rows[rows["bytes"] == pick(rows["bytes"])].set_index("ranks") for pick in (min, max)]
    of_graphs = [replayed[replayed["bytes"] == one["bytes"].iloc[0]].set_index("ranks") for one in by_ranks]
    parts = [
        _launched(one, of_graph, few, many) or _times(one, few, many, terms)
        for one, of_graph in zip(by_ranks, of_graphs, strict=True)
    ]
    ring = listed(f"{units.times(value)} by {term}" for term, value in terms.items())
    return f"**{backend}**, from {few} to {many} ranks: {listed(parts)}. A ring would grow {ring}."


def _launched(by_ranks: pd.DataFrame, of_graph: pd.DataFrame, few: int, many: int) -> str | None:
    """Say how a message's time grows without the host, where the host's launching is most of its time in flight."""
    if not {few, many} <= {*by_ranks.index} & {*of_graph.index}:
        return None
    if any(of_graph["median_us"][ranks] > _LITTLE * by_ranks["median_us"][ranks] for ranks in (few, many)):
        return None
    growth = of_graph["median_us"][many] / of_graph["median_us"][few]
    return (
        f"{units.size(by_ranks['bytes'].iloc[0])}, whose time is mostly the host's launching, takes "
        f"{units.times(growth)} the time when it is replayed from a CUDA graph"
    )


def _times(by_ranks: pd.DataFrame, few: int, many: int, terms: dict[str, float]) -> str:
    """Say how one message's time grows, and which of the ring's terms that is nearer to."""
    name = units.size(by_ranks["bytes"].iloc[0])
    if not {few, many} <= set(by_ranks.index):
        return f"{name} was not timed at both"
    with_few, with_many = by_ranks.loc[few], by_ranks.loc[many]
    if not resolved(with_few["median_us"], with_many["median_us"], with_few["spread_us"], with_many["spread_us"]):
        return f"{name} takes the same time within noise"
    growth = with_many["median_us"] / with_few["median_us"]
    if growth > _BEYOND * max(terms.values()):
        return f"{name} takes {units.times(growth)} the time, **more than either term of a ring**"
    near = min(terms, key=lambda term: abs(log(terms[term] / growth)))
    return f"{name} takes {units.times(growth)} the time, nearer to **{near}**"


def _predicted(rows: pd.DataFrame, fits: pd.DataFrame, captured: pd.DataFrame | None, backend: str) -> str | None:
    ranks, line = rows["ranks"].max(), _at(fits, rows)
    if line is None:
        return None
    sentence, hop = f"**{backend}** was timed with {ranks} ranks only.", _hop(line, captured, rows)
    if hop is None:
        return f"{sentence} Its α in flight may be mostly the host's, no hop's: it predicts no larger ring."
    sizes = (rows["bytes"].min(), rows["bytes"].max())
    rate = line["beta_gb_per_s"]
    small, large = (
        _ring_us(hop["hop_us"], rate, size, _MANY) / _ring_us(hop["hop_us"], rate, size, ranks) for size in sizes
    )
    source = "By its line" if hop is line else f"By its hops without the host ({us(hop['hop_us'])} each) and its β"
    sentence = (
        f"{sentence} {source} a ring of {_MANY} takes {units.times(small)} the time for {units.size(sizes[0])} and "
        f"{units.times(large)} for {units.size(sizes[1])}"
    )
    return f"{sentence}: **a small message costs hops.**" if small > 1.5 * large else f"{sentence}: hops cost both."


def _ring_us(hop_us: float, beta_gb_per_s: float, size: int, ranks: int) -> float:
    return hops(COLLECTIVE, ranks) * hop_us + bus_factor(COLLECTIVE, ranks) * size / beta_gb_per_s / 1e3
