"""From a plan to a Run: have workers started, follow them, and give every row back or one clear error."""

from __future__ import annotations

from numbers import Real
from typing import Any

from labkit import node
from labkit.engine.bars import Bars
from labkit.engine.errors import NotEnoughGpus, NotStarted, PlanError
from labkit.engine.interrupts import Interrupts
from labkit.engine.launches import Launches, measure
from labkit.engine.plan import Plan
from labkit.engine.receipt import Receipt
from labkit.engine.reservation import Reservation
from labkit.engine.run import Run
from labkit.engine.workplace import limit_from_environment, nodes_wanted


def launch(
    plan: Plan,
    *,
    nodes: int | None = None,
    patience_s: float = 180.0,
    limit_s: float = 3600.0,
    progress: bool = True,
    debug: bool = False,
) -> Run:
    """Run the plan's points in one set of worker processes, one a GPU, and return the Run with every row.

    A point that runs out of GPU memory is a row that says so. A point that kills a worker costs one restart: fresh
    workers measure the points after it, then WorkerDied tells of it; whatever else goes wrong ends the run at once.
    `patience_s` bounds the time without any sign from any rank once they are ready, `limit_s` the whole run.
    `progress=False`, or LABKIT_PROGRESS=0 in the environment, shows no bar. `debug=True` measures a plan of one worker
    in this very process, where breakpoints work and the worker's own exception arrives as it is; it loads torch here.

    `nodes=2` runs it on two nodes of a Slurm cluster, with the plan's workers on each: in the allocation of this
    kernel, else in a job that is submitted, as cluster.toml says. LABKIT_NODES in the environment does it for every
    launch.

    A launch holds its GPUs alone among all launches on this node: it takes free ones, else it waits, for `limit_s` at
    most, and shows place and owners. LABKIT_MAX_GPUS and LABKIT_MAX_MINUTES in the environment bound what each user
    holds, and how long a run takes. Where another program holds a GPU, too, `run.source` says so.

    Raises WorkerRaised, WorkerDied, WorkerHung, LauncherLost, GroundLost (each names rank, GPU, point and log, and
    carries the rows measured so far), NotEnoughGpus, or Interrupted (a KeyboardInterrupt) when the cell is
    interrupted; NotStarted, another one, while it waits for GPUs. When it returns or raises, no process of the run is
    left, and its GPUs are free. Raises PlanError where `patience_s` or `limit_s` is no number of seconds.
    """
    _require_seconds(patience_s=patience_s, limit_s=limit_s)
    if (minutes := limit_from_environment("LABKIT_MAX_MINUTES")) is not None:
        limit_s = min(limit_s, 60.0 * minutes)
    if (count := nodes_wanted(nodes)) is not None:
        from labkit.cluster.launch import launch_on_nodes

        if debug:
            raise PlanError("debug=True measures in this process alone: leave `nodes` and LABKIT_NODES out")
        return launch_on_nodes(plan, count, patience_s=patience_s, limit_s=limit_s, progress=progress)
    here = node.here()
    _require_gpus(plan, here)
    reservation, bars = Reservation(plan, here, first_only=debug), Bars(plan, progress)
    with Interrupts() as interrupts:
        try:
            _wait_for_gpus(reservation, interrupts, bars, limit_s)
            run = Run.create(plan, reservation.node)
            if debug:
                from labkit.engine.debug import measure_here

                return measure_here(run)
            receipt = Receipt(run, reservation)
            measure(Launches(run, receipt, bars, patience_s=patience_s, limit_s=limit_s), interrupts)
        finally:
            with interrupts.later():
                reservation.release()
                bars.close()
    return run


def _wait_for_gpus(reservation: Reservation, interrupts: Interrupts, bars: Bars, limit_s: float) -> None:
    try:
        reservation.take(limit_s, bars.show_waiting)
    except KeyboardInterrupt:
        with interrupts.later():
            reservation.release()
        raise NotStarted("interrupted while it waited for GPUs; nothing was started") from None
    finally:
        bars.remove_line()


def _require_seconds(**limits: Any) -> None:
    for name, seconds in limits.items():
        if isinstance(seconds, bool) or not (issubclass(type(seconds), Real) and seconds >= 0):  # NaN is not, either
            raise PlanError(f"{name}={seconds!r}: give a number of seconds, such as 60")


def _require_gpus(plan: Plan, here: node.Node) -> None:
    if plan.device == "cuda" and plan.gpus > len(here.gpus):
        shown = f"this node shows {len(here.gpus)}; use replay() for a recorded run"
        raise NotEnoughGpus(f"the plan wants {plan.gpus} GPU(s), {shown}")
