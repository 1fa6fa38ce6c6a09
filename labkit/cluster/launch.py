"""A plan in, a Run out, over several nodes: what differs there from a launch on one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from labkit.cluster import namespaces, slurm
from labkit.cluster.allocation import own_allocation
from labkit.cluster.by_hand import launch_by_hand
from labkit.cluster.session import NodesSession
from labkit.cluster.session_cache import nodes_session
from labkit.cluster.watch import NodesWatch, measured_clocks
from labkit.engine.errors import NotEnoughGpus, NotStarted, PlanError, notice
from labkit.engine.interrupts import Interrupts
from labkit.engine.launch_settings import Limits, Settings, cluster_name
from labkit.engine.launches import Launches, ResourceUsage, launch_here
from labkit.engine.plan import Plan
from labkit.engine.progress import ProgressBars
from labkit.engine.run import Run
from labkit.node import Node


def launch_on_nodes(plan: Plan, nodes: int, limits: Limits, *, progress: bool, cluster: str = "") -> Run:
    """Run the plan on so many nodes, with the plan's workers on each of them, and return the Run with every row.

    `cluster` is a value of LABKIT_CLUSTER; empty takes the environment's. Raises what `launch` raises, ClusterError
    where no nodes are to be had, which says what to type, and JobEnded where Slurm ends the job.
    """
    cluster = cluster or cluster_name()
    on_slurm = cluster != "namespaces"
    if not on_slurm and plan.device == "cuda":
        raise PlanError("two namespaces of this machine would use the same GPUs: take size='small' and device='cpu'")
    if plan.one_node and plan.device == "cuda" and nodes > 1:
        alone = f"{plan.lab} · {plan.name} runs on one node instead of {nodes}"
        notice(f"{alone}: one of its processes uses the GPUs of all others", stacklevel=3)
        nodes = 1
    if on_slurm and (cluster == "hand" or not slurm.is_available()):
        if nodes == 1:  # this machine, where nothing needs to be pasted
            return launch_here(plan, limits, progress=progress)
        return launch_by_hand(plan, nodes, limits, progress=progress)
    settings = Settings.read() if on_slurm else Settings()
    allocation = own_allocation(nodes, plan.lab) if on_slurm else namespaces.lend_namespaces(nodes)
    plan = plan.with_gpus(plan.gpus * nodes)
    bars = ProgressBars(plan, progress)
    with Interrupts() as interrupts, ExitStack() as stack:
        try:
            waiting_session = nodes_session(plan.worker, nodes, settings, allocation, bars.show_waiting, limits.limit_s)
            session = _wait_for_session(waiting_session, stack, interrupts, bars)
            _require_gpus(plan, session)
            for sentence in node_differences(session.nodes, session.hosts):
                notice(sentence, stacklevel=3)
            run = Run.create(plan, *session.nodes, networks=session.networks, hosts=session.hosts)
            NodesLaunches(run, session, bars, limits).run_all(interrupts)
        finally:
            with interrupts.later():
                bars.close()
                stack.close()
    return run


def _wait_for_session(
    waiting_session: Any, stack: ExitStack, interrupts: Interrupts, bars: ProgressBars
) -> NodesSession:
    """Wait for the stations; an interrupt meanwhile ends them."""
    try:
        return stack.enter_context(waiting_session)
    except KeyboardInterrupt:
        with interrupts.later():
            stack.close()
        raise NotStarted("interrupted while it waited for nodes; nothing was started") from None
    finally:
        bars.remove_line()


def _require_gpus(plan: Plan, session: NodesSession) -> None:
    """Raise NotEnoughGpus where a node shows fewer GPUs than the plan has workers there."""
    workers = plan.gpus // session.count
    for index, (node, host) in enumerate(zip(session.nodes, session.hosts, strict=True)):
        if plan.device == "cuda" and len(node.gpus) < workers:
            shown = f"node {index} ({host}) shows {len(node.gpus)}"
            raise NotEnoughGpus(
                f"the plan wants {workers} GPU(s) on each node, and {shown}: ask Slurm for more with `--gpus-per-node`"
            )


def node_differences(nodes: tuple[Node, ...], hosts: tuple[str, ...]) -> list[str]:
    """Return in which respects the nodes differ: a run is as fast as its slowest node."""
    description_of = {
        "GPUs": lambda node: node.label if node.gpus else "none",
        "drivers": lambda node: node.driver or "none",
        "power caps": lambda node: ", ".join(sorted({f"{gpu.power_limit_w} W" for gpu in node.gpus})) or "none",
        "CPUs": lambda node: node.cpu_name,
        "usable cores": lambda node: str(node.cores),
    }
    sentences = []
    for respect, describe in description_of.items():
        values = [describe(node) for node in nodes]
        if len(set(values)) > 1:
            each = "; ".join(f"{host}: {value}" for host, value in zip(hosts, values, strict=True))
            sentences.append(f"the nodes of this run have different {respect} ({each})")
    return sentences


class NodesLaunches(Launches):
    """The launches of one run over several nodes: all by the same stations."""

    follower = NodesWatch

    def __init__(self, run: Run, stations: NodesSession, bars: ProgressBars, limits: Limits):
        super().__init__(run, NodesUsage(run, stations), bars, limits)
        self.stations = stations  # lent for the whole run

    @contextmanager
    def borrow_session(self) -> Iterator[NodesSession]:
        yield self.stations


class NodesUsage(ResourceUsage):
    """What a run over several nodes took and gave back: the stations have counted what was left on each."""

    def __init__(self, run: Run, session: NodesSession):
        super().__init__(run)
        self.session = session

    def processes_left(self) -> int:
        return super().processes_left() + self.session.processes_left(self.run)

    def more_fields(self) -> dict[str, Any]:
        """Return the job, and by how much each node's clock was ahead of node 0's."""
        return {"job": self.session.allocation.number, "clocks": measured_clocks(self.run)}
