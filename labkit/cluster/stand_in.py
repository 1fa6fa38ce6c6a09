"""A lesson's launch on two nodes, wherever it is read: on a cluster, in two namespaces, or else a recorded run."""

from __future__ import annotations

import os
import warnings

from labkit.cluster import namespaces
from labkit.cluster.launch import launch_on_nodes
from labkit.engine.plan import Plan
from labkit.engine.run import Run, replay
from labkit.engine.workplace import limit_from_environment, nodes_wanted


def launch_or_replay(
    plan: Plan,
    recorded: str,
    *,
    nodes: int | None = None,
    patience_s: float = 180.0,
    limit_s: float = 3600.0,
    progress: bool = True,
) -> Run:
    """Run the plan on two nodes (or `nodes`), with its workers on each; where none are to be had, replay `recorded`.

    In a Slurm allocation, and where LABKIT_CLUSTER names a cluster, it is launched there. Elsewhere two network
    namespaces of this machine are the nodes. Where the machine lends none, a warning says why, and the recorded run
    stands in. Raises what `launch` raises.
    """
    wanted = nodes_wanted(nodes) or 2
    cluster = os.environ.get("LABKIT_CLUSTER") or ("slurm" if "SLURM_JOB_ID" in os.environ else "namespaces")
    if cluster == "namespaces" and (why := namespaces.why_not()):
        warnings.warn(f"{plan.lab} · {plan.name}: {why}. The recorded run stands in: {recorded}", stacklevel=2)
        return replay(recorded)
    if (minutes := limit_from_environment("LABKIT_MAX_MINUTES")) is not None:
        limit_s = min(limit_s, 60.0 * minutes)
    limits = {"patience_s": patience_s, "limit_s": limit_s}
    return launch_on_nodes(plan, wanted, **limits, progress=progress, cluster=cluster)
