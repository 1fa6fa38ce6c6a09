"""Tables of lab 01 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import itertools

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, say

_EQUAL = 1.05  # pairs within 5 % of each other are called equal
_INDEPENDENT, _LITTLE = 0.98, 0.9  # shares of its rate that a GPU keeps while all copy
_WAYS = {"host_to_gpu": "Host → GPU", "gpu_to_host": "GPU → host"}


def explain_placement(topology) -> Markdown:
    """Say what the wiring means: whether NVLink makes all pairs equal, and whether NUMA does not."""
    gpus = [device.name for device in topology.devices if device.kind == "gpu"]
    if not gpus:
        return say("This machine shows no GPU, so there is nothing to be wired.")
    if len(gpus) == 1:
        return say(
            "One GPU: no link between GPUs, and every byte from elsewhere comes over its host link.", _unread(topology)
        )
    kinds = {topology.path(a, b).kind for a, b in itertools.combinations(gpus, 2)}
    if len(kinds) == 1 and (kind := next(iter(kinds))).startswith("NV"):
        links = (
            f"**NVLink makes every pair equal**: {kind[2:]} link{'s' * (kind != 'NV1')} between any two of the "
            f"{len(gpus)} GPUs. No ring or tree of GPUs is better than another."
        )
    elif len(kinds) == 1:
        links = (
            f"Every pair of the {len(gpus)} GPUs is {next(iter(kinds))}: alike, but without NVLink, so copies "
            "between GPUs share PCIe with copies from the host."
        )
    else:
        links = (
            f"**Pairs differ** ({listed(sorted(kinds))}): a ring should follow the nearest links, and which "
            "GPUs talk most matters."
        )
    nodes = {n: [d for d in names if d in gpus] for n, names in topology.numa_nodes().items()}
    nodes = {n: names for n, names in nodes.items() if names}
    if untold := nodes.pop(None, []):
        host = f"The matrix does not tell which NUMA node {listed(untold)} hang{'s' if len(untold) == 1 else ''} at."
    elif len(nodes) > 1:
        placed = listed(f"{', '.join(names)} at node {n}" for n, names in nodes.items())
        host = (
            f"**NUMA does not make them equal**: {placed}. A host buffer on one node is far from the other's "
            "GPUs, and its bytes cross between the sockets."
        )
    else:
        host = "All GPUs hang at one NUMA node: host memory is as near to one as to another."
    return say(links, host, _unread(topology))


def _unread(topology) -> str | None:
    odd = [f"{device.name} ({device.unread})" for device in topology.devices if device.unread]
    return f"The text prints an affinity that cannot be read, so it counts as unknown: {listed(odd)}." if odd else None


def explain_matrix(table: pd.DataFrame) -> Markdown:
    """Say whether the measured pairs are equal, how much of NVLink they reach, and what contradicts the datasheet."""
    pairs = table[(table["source"] != table["target"]) & table["gb_per_s"].notna()]
    if pairs.empty:
        return say("No pair of GPUs was measured.", small=fact(table, "small"))
    low, high = pairs.loc[pairs["gb_per_s"].idxmin()], pairs.loc[pairs["gb_per_s"].idxmax()]
    ratio = high["gb_per_s"] / low["gb_per_s"]
    if ratio <= _EQUAL:
        same = (
            f"**Every pair copies alike**: {units.rate(pairs['gb_per_s'].median())}, the fastest only "
            f"{units.percent(ratio - 1)} above the slowest."
        )
    else:
        same = (
            f"**Pairs are not alike**: {low['source']:.0f} → {low['target']:.0f} reaches "
            f"{units.rate(low['gb_per_s'])}, "
            f"{high['source']:.0f} → {high['target']:.0f} {units.times(ratio)} that."
        )
    share = pairs["share_of_limit"].median()
    part = f"The median pair reaches {units.percent(share)} of its links' datasheet rate." if share > 0 else None
    return say(same, part, _flagged(table), small=fact(table, "small"))


def explain_host(summary: pd.DataFrame) -> Markdown:
    """Say, per direction, what pinning gains and whether the GPUs disturb each other when all copy simultaneously."""
    sentences = []
    for copy, rows in summary.groupby("copy", sort=False):
        rows = rows.set_index("memory")
        sentences += [_pinning(rows, _WAYS[copy]), _together(rows, _WAYS[copy], fact(summary, "small"))]
    return say(*sentences or ["No copy between host and GPU was measured."], small=fact(summary, "small"))


def _pinning(rows: pd.DataFrame, way: str) -> str | None:
    if not {"pageable", "pinned"} <= set(rows.index):
        return None
    pinned, pageable = (rows.loc[memory, "alone_gb_per_s"] for memory in ("pinned", "pageable"))
    if pinned / pageable > _EQUAL:
        return (
            f"{way}, **pinned memory gives {units.times(pinned / pageable)} the rate of pageable memory** "
            f"({units.rate(pinned)} against {units.rate(pageable)})."
        )
    return f"{way}, pinning gains nothing here ({units.times(pinned / pageable)})."


def _together(rows: pd.DataFrame, way: str, small: bool) -> str | None:
    row = rows.loc["pinned" if "pinned" in rows.index else rows.index[0]]
    count, kept, total = row["gpus"], row["share_kept"], units.rate(row["all_at_once_gb_per_s"])
    if count <= 1:
        return None
    all_of = f"{way}, all {count:.0f} simultaneously"
    if kept <= 1.1 / count:
        return f"{all_of}, they get {total} together, about what one gets alone: **they share one bottleneck**."
    much = f"{all_of}, each keeps {units.percent(kept)} of its rate ({total} together)"
    if small:
        return f"{much}."
    if kept >= _INDEPENDENT:
        return f"{much}: their links are independent."
    return f"{much}: {'the GPUs slow each other little' if kept >= _LITTLE else 'something on the way is shared'}."


def explain_numa(table: pd.DataFrame) -> Markdown:
    """Say what a host buffer on the far NUMA node costs; empty tables are machines with one node."""
    if table.empty:
        return say("This machine has one NUMA node, so no host memory is far from a GPU.")
    loss = 1 - (table["far_gb_per_s"] / table["near_gb_per_s"]).min()
    if loss > 0.05:
        return say(
            f"**The far NUMA node costs up to {units.percent(loss)}** of a GPU's host rate: bind each "
            "rank to the node of its GPU."
        )
    return say(f"The far NUMA node costs at most {units.percent(max(loss, 0))}: binding ranks to nodes gains little.")


def _flagged(table: pd.DataFrame) -> str | None:
    beaten = table[table["verdict"] == "impossible"]
    slow = table[table["verdict"] == "suspiciously low"]
    if len(beaten):
        return f"**{len(beaten)} measurement(s) are faster than the datasheet allows**: look for a mistake in them."
    if len(slow):
        return f"{len(slow)} measurement(s) are below a quarter of their link's rate: something else limits them."
    return "No measurement is faster than the datasheet allows." if (table["verdict"] == "ok").all() else None
