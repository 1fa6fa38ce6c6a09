"""How many GPUs a launch may use on a node: those of this machine, or those that a cluster's job would have."""

from __future__ import annotations

import os

from labkit import node
from labkit.engine.errors import PlanError

# Values of LABKIT_CLUSTER: the kernel's own allocation of Slurm's, else a job; always a job; no Slurm, lines to paste;
# two network namespaces of this machine, whose processes stand in for GPUs.
CLUSTERS = ("slurm", "submit", "hand", "namespaces")


def limit_from_environment(variable: str) -> int | None:
    """Return the whole number that a course sets for each user in this variable; None where it sets none."""
    text = os.environ.get(variable, "").strip()
    if text and not (text.isdecimal() and int(text) > 0):
        raise PlanError(f"{variable}={text!r}: give a whole number, 1 or more, or leave the variable out")
    return int(text) if text else None


def nodes_wanted(nodes: int | None = None) -> int | None:
    """Return on how many nodes of a cluster to launch; None for this machine alone, without a cluster."""
    if nodes is not None and not (isinstance(nodes, int) and nodes > 0):
        raise PlanError(f"nodes={nodes!r}: give a number of nodes, 1 or more")
    wanted = nodes or limit_from_environment("LABKIT_NODES")
    cluster = os.environ.get("LABKIT_CLUSTER")
    if cluster is not None and cluster not in CLUSTERS:
        raise PlanError(f"LABKIT_CLUSTER={cluster!r} is not known; it is one of {', '.join(CLUSTERS)}")
    if cluster is not None:
        return wanted or 2
    return wanted if wanted and wanted > 1 else None


def visible_gpus() -> int:
    """Return how many GPUs a node shows: this one, or one of a job that is still to be submitted."""
    cluster = os.environ.get("LABKIT_CLUSTER", "slurm")
    if cluster == "namespaces":
        return 0
    if nodes_wanted() is None or cluster == "hand" or (cluster == "slurm" and "SLURM_JOB_ID" in os.environ):
        return len(node.here().gpus)
    from labkit.cluster.settings import Settings

    return Settings.read().gpus_per_node


def allowed_gpus() -> int:
    """Return how many GPUs of a node one launch may use: those that are visible, at most LABKIT_MAX_GPUS."""
    visible = visible_gpus()
    return min(visible, limit_from_environment("LABKIT_MAX_GPUS") or visible)
