"""Tables of lab 01 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.verdict import NOT_COMPARED, one_minute, verdict
from labkit.story.words import listed, resolved
from lessons.topology import tables

if TYPE_CHECKING:
    from labkit.engine.run import Run

_EQUAL = 1.05  # rates within 5 % of each other are called equal
_MOST = 0.75  # of a rate
_NEAR = 0.05  # of a rate: a smaller loss is called none
_MOST_NODES = 3  # NUMA nodes that a sentence names; a verdict holds no more numbers


def placement(topology) -> Markdown:
    """Say whether the wires make all pairs of GPUs equal, and whether all GPUs are as near to the host's memory.

    The topology's note, where it has one, says which node this is and where the matrix comes from.
    """
    return Markdown(f"{_placement(topology).data} {topology.note}".rstrip())


def _placement(topology) -> Markdown:
    gpus = [device.name for device in topology.devices if device.kind == "gpu"]
    if not gpus:
        return verdict("This machine shows no GPU, so there is nothing to be wired.")
    if len(gpus) == 1:
        return verdict("One GPU: every byte from elsewhere comes over its host link.")
    kinds = sorted({topology.path(a, b).kind for a, b in itertools.combinations(gpus, 2)})
    if len(kinds) > 1:
        pairs = f"**Pairs of GPUs differ** ({listed(kinds)}): use the fast ones"
    elif kinds[0].startswith("NV"):
        pairs = "**NVLink makes every pair of GPUs equal**"
    else:
        pairs = f"Every pair of GPUs is {kinds[0]}: equal, but without NVLink"
    return verdict(f"{pairs}; {_host(topology, gpus)}.")


def _host(topology, gpus: list[str]) -> str:
    """Return half a sentence: whether the GPUs share one NUMA node, as far as the matrix tells."""
    members = {number: [name for name in names if name in gpus] for number, names in topology.numa_nodes().items()}
    untold = members.pop(None, [])
    nodes = {number: names for number, names in members.items() if names}
    if len(nodes) > _MOST_NODES:
        host = "**the GPUs are at several NUMA nodes**, as the map shows"
    elif len(nodes) > 1:
        places = "; ".join(f"{listed(names)} at NUMA node {number}" for number, names in nodes.items())
        host = f"**the GPUs are at several NUMA nodes**: {places}"
    else:
        host = "" if untold else "all GPUs are at one NUMA node"
    return "; ".join(
        filter(None, [host, f"the matrix does not tell the NUMA node of {listed(untold)}" if untold else ""])
    )


def same_bytes(table: pd.DataFrame) -> Markdown:
    """Say whether every copy brought the bytes that were sent; takes `copies`."""
    wrong = table[table["status"] != "ok"]
    if len(wrong):
        return verdict(f"✘ Wrong or missing bytes in {len(wrong)} of {len(table)} copies.")
    return verdict(f"✔ All {len(table)} copies brought the bytes that were sent.")


def _pairs(table: pd.DataFrame) -> pd.Series:
    return table.loc[table["path"] == "between", "gb_per_s"].dropna()


def pairs_alike(table: pd.DataFrame) -> Markdown:
    """Say whether all pairs of GPUs copy at the same rate; takes `copies`."""
    pairs = table[(table["path"] == "between") & table["gb_per_s"].notna()].sort_values("gb_per_s")
    if pairs.empty:
        return verdict("No pair was measured.")
    (slow, slow_spread), (fast, fast_spread) = pairs[["gb_per_s", "spread_gb_per_s"]].iloc[[0, -1]].to_numpy()
    if fast / slow <= _EQUAL:
        return verdict(
            f"**Every pair copies alike**: the fastest is {units.percent(fast / slow - 1)} above the slowest."
        )
    if not resolved(slow, fast, slow_spread, fast_spread):
        return verdict("**Every pair copies alike**, within noise.")
    return verdict(f"**Pairs are not alike**: the fastest copies {units.times(fast / slow)} as fast as the slowest.")


def pinning(table: pd.DataFrame) -> Markdown:
    """Say what pinned memory gains over pageable memory, one GPU alone; takes `host_rates`."""
    gains = _pinning_gains(table)
    if not gains:
        return verdict("This run has no pinned memory to compare: there is no GPU to pin it for.")
    faster = listed(f"{way} {units.times(gain)}" for way, gain in gains.items() if gain > _EQUAL)
    return verdict(
        "Pinned memory gains nothing here." if faster == "none" else f"**Pinned memory is faster**: {faster}."
    )


def _pinning_gains(table: pd.DataFrame) -> dict[str, float]:
    """Return the gain by pinning for each direction; empty where a run has one memory only."""
    wide = table.pivot_table(index="name", columns="memory", values="alone_gb_per_s", sort=False)
    return (wide["pinned"] / wide["pageable"]).dropna().to_dict() if {"pinned", "pageable"} <= {*wide} else {}


def together(table: pd.DataFrame) -> Markdown:
    """Say which share of its rate a GPU keeps while all copy, from the best memory there is; takes `host_rates`."""
    ranks, kept = fact(table, "ranks"), _kept(table)
    if ranks < 2 or not kept:
        return verdict("One GPU alone shares its link with nobody.")
    shares = listed(f"{units.percent(share)} ({name})" for name, share in kept.items())
    kind = "with pinned memory" if "pinned" in {*table["memory"]} else "with pageable memory"
    if max(kept.values()) <= 1.1 / ranks:
        return verdict(f"**All {ranks} share one bottleneck**: of its rate alone each keeps {shares}, {kind}.")
    much = "most" if min(kept.values()) > _MOST else "a part"
    return verdict(f"While all {ranks} copy {kind}, **each keeps {much} of its rate alone**: {shares}.")


def _kept(table: pd.DataFrame) -> dict[str, float]:
    rows = table[table["memory"] == ("pinned" if "pinned" in {*table["memory"]} else "pageable")]
    return rows.set_index("name")["share_kept"].to_dict()


def far_node(table: pd.DataFrame) -> Markdown:
    """Say what host memory of the far NUMA node costs; takes `copies`."""
    losses = tables.far_losses(table)
    if losses.empty:
        return verdict("This run used the memory of one NUMA node, so there is no other to compare with.")
    if losses.max() > _NEAR:
        return verdict(f"**The far NUMA node costs up to {units.percent(losses.max())}** of a GPU's host rate.")
    return verdict("The far NUMA node costs next to nothing here.")


def beside_datasheet(table: pd.DataFrame) -> Markdown:
    """Say which share of its link's rate each path reaches, and whether a copy beats it; takes `alone` copies."""
    rows = table[table["datasheet_gb_per_s"].notna()]
    if rows.empty:
        return verdict("No datasheet is known for these paths, so no limit either.")
    if (rows["verdict"] == "impossible").any():
        return verdict("**A copy is faster than its link allows**: look for a mistake in that measurement.")
    of_gpus = rows[rows["path"].isin(["within", "between"]) | (rows["memory"] == "pinned")]
    low, high = of_gpus["share_of_limit"].min(), of_gpus["share_of_limit"].max()
    slow = rows.loc[rows["memory"] == "pageable", "share_of_limit"].max()
    rest = f"; from or to pageable memory, at most {units.percent(slow)}" if slow > 0 else ""
    span = f"{units.percent(low)} to {units.percent(high)}"
    return verdict(f"**Between GPUs and with pinned memory, copies reach {span} of the link's rate**{rest}.")


def size_matters(small: pd.DataFrame, large: pd.DataFrame) -> Markdown:
    """Say on which paths small copies are faster or slower than large ones; takes two runs' `alone` copies.

    Host memory that is pinned and that is not are two paths.
    """
    small, large = (
        table.assign(name=table["name"] + (" (" + table["memory"] + ")").where(table["memory"].notna(), ""))
        for table in (small, large)
    )
    rates = [table.groupby("name", sort=False)["gb_per_s"].median() for table in (small, large)]
    sizes = [fact(table, "size") for table in (small, large)]
    shown = pd.concat(rates, axis=1, join="inner").reset_index()
    shown.columns = ["path", *(f"GB/s, {size} a copy" for size in sizes)]
    if _pairs(small).empty or _pairs(large).empty:
        return verdict("No pair was measured in both sizes.", shown)
    spreads = [table.groupby("name", sort=False)["spread_gb_per_s"].median() for table in (small, large)]
    names = [name for name in rates[0].index if name in rates[1].index]
    differ = [name for name in names if resolved(*(medians[name] for medians in (*rates, *spreads)))]
    if not differ:
        return verdict(f"**On every path {sizes[0]} and {sizes[1]} are copied at one rate, within noise.**", shown)
    factors = {name: rates[0][name] / rates[1][name] for name in differ}
    most = max(factors, key=lambda name: abs(math.log(factors[name])))
    others = (
        f" Within noise: {listed(name for name in names if name not in differ)}." if len(differ) < len(names) else ""
    )
    times = units.times(factors[most])
    return verdict(f"**{most}: {sizes[0]} is copied at {times} the rate of {sizes[1]}.**{others}", shown)


def in_one_minute(run: Run, recorded: Run) -> Markdown:
    """Return the lesson's rules, each with what it is worth in this run and in the recorded one."""
    return one_minute(_RULES, here=run, recorded=recorded)


def _fastest(run: Run) -> str:
    rates = tables.alone(tables.copies(run)).groupby(["name", "memory"], dropna=False)["gb_per_s"].median()
    return f"the fastest has {units.times(rates.max() / rates.min())} the rate of the slowest"


def _alike(run: Run) -> str | None:
    rates = _pairs(tables.copies(run))
    if run.plan.device == "cpu":
        return "CPU processes have no wires"
    return f"fastest pair {units.percent(rates.max() / rates.min() - 1)} above the slowest" if len(rates) else None


def _pinned(run: Run) -> str | None:
    gains = _pinning_gains(tables.host_rates(tables.copies(run)))
    return listed(f"{name} {units.times(gain)}" for name, gain in gains.items()) if gains else "no GPU to pin for"


def _shared(run: Run) -> str | None:
    if run.plan.device == "cpu":
        return NOT_COMPARED
    kept = min(_kept(tables.host_rates(tables.copies(run))).values())
    return f"each keeps at least {units.percent(kept)} of its rate alone" if run.plan.gpus > 1 else None


def _share(run: Run) -> str | None:
    shares = tables.copies(run).query("path == 'between'")["share_of_limit"].dropna()
    return (
        f"GPU → GPU: {units.percent(shares.median())} of its rate" if len(shares) else "no datasheet for CPU processes"
    )


_RULES = {
    "Know your paths, and keep bytes on the fast ones": _fastest,
    "Let the matrix say whether pairs are alike; measure it": _alike,
    "Pin host memory that a GPU copies": _pinned,
    "Measure links alone and all together": _shared,
    "Compare with the link's rate: below it is normal, above it is a mistake": _share,
}
