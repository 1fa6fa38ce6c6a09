"""From a plan to a Run, wherever its workers are: on this node, or on several nodes of a cluster."""

from __future__ import annotations

import os
import warnings

from labkit.engine.errors import PlanError
from labkit.engine.launch_settings import Limits, cluster_or_namespaces, nodes_wanted
from labkit.engine.launches import launch_here
from labkit.engine.plan import Plan
from labkit.engine.recordings import replay
from labkit.engine.run import Run

PATIENCE_S, LIMIT_S = 180.0, 3600.0


def launch(
    plan: Plan,
    *,
    nodes: int | None = None,
    patience_s: float = PATIENCE_S,
    limit_s: float = LIMIT_S,
    progress: bool = True,
    debug: bool = False,
) -> Run:
    """Run the plan's points in one set of worker processes, one a GPU, and return the Run with every row.

    A point that runs out of GPU memory is a row that says so. A point that kills a worker costs one restart: fresh
    workers measure the points after it, then WorkerDied tells of it; whatever else goes wrong ends the run at once.
    `patience_s` bounds the time without any sign from any rank once they are ready, `limit_s` the whole run.
    `progress=False`, or LABKIT_PROGRESS=0 in the environment, shows no bar. `debug=True` measures a plan of one worker
    in this very process, where breakpoints work and the worker's own exception arrives as it is; it loads torch here.

    `nodes=2` runs it on two nodes, with the plan's workers on each. LABKIT_NODES in the environment does it for every
    launch. LABKIT_CLUSTER says where they are, and without LABKIT_NODES means two of them: "slurm" in the Slurm
    allocation in which this kernel runs (outside of one, ClusterError says what to type); "hand" on machines without
    Slurm, where each gets a line to paste; "namespaces" on two of this machine, whose processes stand in for GPUs.

    A launch holds its GPUs alone among all launches on this node: it takes free ones, else it waits, for `limit_s` at
    most, and shows who holds them. LABKIT_MAX_GPUS and LABKIT_MAX_MINUTES in the environment bound what each user
    holds, and how long a run takes. Where another program holds a GPU, too, `run.source` says so.

    A plan of size="recorded" launches nothing: what is returned is the recorded run that it was read from.

    Raises WorkerRaised, WorkerDied, WorkerHung, LauncherLost, GroundLost (each names rank, GPU, point and log, and
    carries the rows measured so far), NotEnoughGpus, or Interrupted (a KeyboardInterrupt) when the cell is
    interrupted; NotStarted, another one, while it waits for GPUs; over nodes also ClusterError, where none are to be
    had, and JobEnded. When it returns or raises, no process of the run is
    left, and its GPUs are free. Raises PlanError where `patience_s` or `limit_s` is no number of seconds.
    """
    if plan.recording:
        return replay(plan.recording)
    limits = Limits(patience_s, limit_s).within_the_course()
    if (count := nodes_wanted(nodes)) is None:
        return launch_here(plan, limits, progress=progress, debug=debug)
    if debug:
        raise PlanError("debug=True measures in this process alone: leave `nodes` and LABKIT_NODES out")
    from labkit.cluster.launch import launch_on_nodes  # a launch on one node needs nothing of a cluster

    return launch_on_nodes(plan, count, limits, progress=progress)


def launch_or_replay(plan: Plan, recorded: str) -> Run:
    """Run the plan on two nodes (or LABKIT_NODES); where none are to be had, replay `recorded`.

    In a Slurm allocation, and where LABKIT_CLUSTER names a cluster, it is launched there. Elsewhere two network
    namespaces of this machine are the nodes. Where the machine lends none, a warning says why, and the recorded run
    stands in. Raises what `launch` raises.
    """
    if plan.recording:
        return replay(plan.recording)
    if why := why_replayed():
        warnings.warn(f"{plan.lab} · {plan.name}: {why}. The recorded run stands in: {recorded}", stacklevel=2)
        return replay(recorded)
    return launch_over_nodes(plan)


def launch_over_nodes(plan: Plan, *, patience_s: float = PATIENCE_S) -> Run:
    """Run the plan on two nodes (or LABKIT_NODES), found as `launch_or_replay` does. Raises what `launch` raises."""
    from labkit.cluster.launch import launch_on_nodes

    limits = Limits(patience_s, LIMIT_S).within_the_course()
    return launch_on_nodes(plan, nodes_wanted() or 2, limits, progress=True, cluster=cluster_or_namespaces())


def why_replayed() -> str:
    """Return why `launch_or_replay` has no nodes here; "" where it has some."""
    from labkit.cluster import namespaces

    return namespaces.why_not() if cluster_or_namespaces() == "namespaces" else ""


def why_no_nodes_now() -> str:
    """Return why there are no nodes here before somebody allocates them or pastes lines; "" where there are some."""
    if cluster_or_namespaces() == "namespaces" or (cluster_or_namespaces() == "slurm" and "SLURM_JOB_ID" in os.environ):
        return why_replayed()
    return f"LABKIT_CLUSTER={cluster_or_namespaces()} has no nodes yet"
