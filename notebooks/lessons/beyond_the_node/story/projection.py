"""Tables of lab 14's theory → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, bullets, listed, say

_NAMES = {
    "ddp": "DDP with one flat ring",
    "hierarchical": "DDP in two levels",
    "tree": "DDP in two levels with a tree",
    "fsdp": "FSDP over all GPUs",
    "hsdp": "HSDP",
}
_ENOUGH = 0.9  # of the speed of computing alone
_SAME = 0.05  # two times within 5 % are called equal


def explain_two_levels(table: pd.DataFrame) -> Markdown:
    """Say per number of nodes what two levels save for the smallest and the largest message, in time and in bytes."""
    return bullets(*(_saved(int(nodes), rows) for nodes, rows in table.groupby("nodes")))


def _saved(nodes: int, rows: pd.DataFrame) -> str:
    times = rows.pivot_table(index="whole_bytes", columns="method", values="call_ms")
    ratio = times["flat"] / times["hierarchical"]
    (small, most), (large, least) = (ratio.index[0], ratio.iloc[0]), (ratio.index[-1], ratio.iloc[-1])
    sent = rows[rows["whole_bytes"] == large].set_index("method")["link_bytes"]
    saved = 1 - sent["hierarchical"] / sent["flat"]
    return (
        f"**{nodes} nodes.** With {_compared(small, most)}, and with {_compared(large, least)}. Two levels send "
        f"{units.percent(saved)} less between nodes."
    )


def _compared(size_bytes: float, ratio: float) -> str:
    size = units.size(size_bytes)
    if abs(ratio - 1) <= _SAME:
        return f"{size} both take equally long"
    if ratio > 1:
        return f"{size} two levels are {units.times(ratio)} as fast as one flat ring"
    return f"{size} one flat ring is {units.times(1 / ratio)} as fast as two levels"


def explain_traffic(table: pd.DataFrame) -> Markdown:
    """Say what HSDP and FSDP send between nodes beside DDP, and which strategies accumulation does not help."""
    sizes = table.pivot_table(index="accumulation", columns="strategy", values="link_mib")
    few, many = sizes.index.min(), sizes.index.max()
    saved = units.times(sizes.loc[many, "fsdp"] / sizes.loc[many, "hsdp"])
    grown = sizes.loc[many] / sizes.loc[few]
    more = [name for name in ("fsdp", "ddp", "hsdp") if grown[name] > 1 + _SAME]
    growth = (
        f"With {many} micro-batches per step instead of {few}, {listed(map(_NAMES.get, more))} sends "
        f"{units.span(grown[more])} as much per step. The others send the same: they exchange once per step."
        if more
        else "No strategy sends more per step with more micro-batches."
    )
    return say(
        f"**HSDP sends {saved} less between nodes than FSDP** with {many} micro-batch{'es' if many > 1 else ''} per "
        "step: it gathers weights inside the node.",
        growth,
        f"One exchange every {fact(table, 'every')} steps sends {units.size(sizes.loc[few, 'local'] * units.MIB)} per "
        "step on average; the exchange itself is as large as DDP's.",
    )


def explain_link_rate(table: pd.DataFrame) -> Markdown:
    """Say which link each strategy needs for 90 % efficiency, and what accumulation changes."""
    return bullets(*(_needed(strategy, rows) for strategy, rows in table.groupby("strategy", sort=False)))


def _needed(strategy: str, rows: pd.DataFrame) -> str:
    enough = rows[rows["efficiency"] >= _ENOUGH].groupby("accumulation")["link_gbit_per_s"].min()
    name, needs = _NAMES[strategy], []
    for count in sorted(set(rows["accumulation"])):
        per = f"{count} micro-batch{'es' if count > 1 else ''} per step"
        rate = f"{units.number(enough[count])} Gbit/s" if count in enough else None
        most = f"more than {units.number(rows['link_gbit_per_s'].max())} Gbit/s"
        needs.append(f"{rate or most} with {per}")
    said = f"**{name}** needs {listed(needs)} for {units.percent(_ENOUGH)} efficiency."
    known = enough.to_numpy()
    if len(known) > 1:
        ratio = known.max() / known.min()
        said += (
            " Accumulation does not change that: it exchanges in each micro-batch."
            if ratio <= 1 + _SAME
            else f" Accumulation makes {units.times(ratio)} slower links enough."
        )
    return said


@about_tables
def explain_projection(table: pd.DataFrame) -> Markdown:
    """Say per strategy where its efficiency falls below 90 % and why, then what stragglers add on the most GPUs."""
    most = table[table["gpus"] == table["gpus"].max()]
    return bullets(*(_fall(name, rows) for name, rows in table.groupby("strategy", sort=False)), _stragglers(most))


def _fall(strategy: str, rows: pd.DataFrame) -> str:
    fallen = rows[rows["efficiency"] < _ENOUGH]
    last = rows.iloc[-1]
    if fallen.empty:
        return f"**{_NAMES[strategy]}** keeps {units.percent(last['efficiency'])} on {units.count(last['gpus'])} GPUs."
    first = fallen.iloc[0]
    share = first["latency_share"]
    cause = f"latency ({units.percent(share)} of it)" if share > 0.5 else f"bytes ({units.percent(1 - share)} of it)"
    kept = _not_onto(first["efficiency"], _ENOUGH)
    gpus = units.count(first["gpus"])
    return f"**{_NAMES[strategy]}** keeps {kept} on {gpus} GPUs: most of its communication is {cause}."


def _not_onto(share: float, threshold: float) -> str:
    """Return a share in percent, with one more digit where it would be rounded onto the threshold."""
    text = units.percent(share)
    return text if text != units.percent(threshold) else f"{units.number(100 * share)} %"


def _stragglers(most: pd.DataFrame) -> str:
    best = most.loc[most["efficiency"].idxmax()]
    lost = best["efficiency"] - best["simulated_efficiency"]
    stalls = f" A stall hits {units.percent(best['stalled_share'])} of the steps." if best["stalled_share"] > 0 else ""
    if lost < 0.005:
        return f"The slowest rank costs nothing that shows: all ranks are taken to be equally fast.{stalls}"
    kept = f"{units.percent(best['simulated_efficiency'])} instead of {units.percent(best['efficiency'])}"
    return (
        f"**Stragglers:** on {units.count(best['gpus'])} GPUs the slowest rank computes {units.times(best['slowest'])} "
        f"as long as the median rank. {_NAMES[best['strategy']]} then keeps {kept}.{stalls}"
    )
