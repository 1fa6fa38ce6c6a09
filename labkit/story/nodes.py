"""What the links between the nodes of a run can carry at best, in sentences."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.node.limits import spec
from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, say

ONE_NODE = "All ranks ran on one node, so no link between nodes carried anything."


def link_rate(node) -> str:
    """Return the most that a node's link carries in one direction, of a row of `labkit.tables.nodes.nodes_table`."""
    return "rate not told" if pd.isna(node.link_gb_per_s) else units.rate(node.link_gb_per_s)


def explain_links(table: pd.DataFrame) -> Markdown:
    """Say which node's link bounds what the nodes exchange, beside NVLink within a node; nothing of a single node."""
    if len(table) == 1:
        return say()
    untold = table[table["link_gb_per_s"].isna()]
    if len(untold):
        nodes = listed(f"node {row.node} ({row.interface})" for row in untold.itertuples())
        return say(
            f"The kernel does not tell the rate of the link of {nodes}, as of every virtual interface.",
            "The fastest transfer between two nodes that was ever measured is the best limit that is known.",
        )
    slowest = table.loc[table["link_gb_per_s"].idxmin()]
    rate, fastest = slowest["link_gb_per_s"], table["link_gb_per_s"].max()
    if rate < fastest:
        which = (
            f"**The link of node {slowest['node']} bounds what the nodes exchange**: it carries at most "
            f"{units.rate(rate)} in one direction ({slowest['interface']}), and the fastest link of the other nodes "
            f"{units.rate(fastest)}. A collective over all nodes waits for the slowest link."
        )
    else:
        which = f"**Each node's link carries at most {units.rate(rate)} in one direction** ({slowest['interface']})."
    return say(which, _beside_nvlink(fact(table, "gpu_models")[slowest["node"]], rate))


def _beside_nvlink(gpu_model: str | None, rate: float) -> str | None:
    """Return how much more a GPU's NVLinks carry within the node; None where no datasheet tells it."""
    limits = spec(gpu_model)
    if limits is None or not limits.nvlink_gb_per_s:
        return None
    ratio = limits.nvlink_gb_per_s / rate
    more = f"{units.times(ratio)} as much" if ratio > 1 else "no more"
    return f"Within the node, the NVLinks of one GPU carry {units.rate(limits.nvlink_gb_per_s)}: {more}."
