"""A lesson's launch on two nodes, wherever it is read: on a cluster, in two namespaces, or else a recorded run."""

from __future__ import annotations

import os
import warnings

from labkit.engine.plan import Plan
from labkit.engine.run import Run, replay
from labkit.engine.workplace import limit_from_environment, nodes_wanted

PATIENCE_S, LIMIT_S = 180.0, 3600.0  # as of any launch


def launch_or_replay(plan: Plan, recorded: str) -> Run:
    """Run the plan on two nodes (or LABKIT_NODES); where none are to be had, replay `recorded`.

    In a Slurm allocation, and where LABKIT_CLUSTER names a cluster, it is launched there. Elsewhere two network
    namespaces of this machine are the nodes. Where the machine lends none, a warning says why, and the recorded run
    stands in. Raises what `launch` raises.
    """
    # Only here: the front door names this function, and a launch on one node needs nothing of a cluster.
    from labkit.cluster import namespaces
    from labkit.cluster.launch import launch_on_nodes

    nodes = nodes_wanted() or 2
    cluster = os.environ.get("LABKIT_CLUSTER") or ("slurm" if "SLURM_JOB_ID" in os.environ else "namespaces")
    if cluster == "namespaces" and (why := namespaces.why_not()):
        warnings.warn(f"{plan.lab} · {plan.name}: {why}. The recorded run stands in: {recorded}", stacklevel=2)
        return replay(recorded)
    minutes = limit_from_environment("LABKIT_MAX_MINUTES")
    limit_s = LIMIT_S if minutes is None else min(LIMIT_S, 60.0 * minutes)
    return launch_on_nodes(plan, nodes, patience_s=PATIENCE_S, limit_s=limit_s, progress=True, cluster=cluster)
