"""From a plan to a Run: have workers started, follow them, and give every row back or one clear error."""

from __future__ import annotations

import os
import time

from labkit import node
from labkit.engine import watch
from labkit.engine.errors import Interrupted, LauncherLost, NotEnoughGpus, RunError, WorkerDied, with_limit
from labkit.engine.interrupts import Interrupts
from labkit.engine.plan import Plan
from labkit.engine.receipt import Receipt
from labkit.engine.run import Run
from labkit.engine.session import MARK, Session, environment, import_path


def launch(
    plan: Plan, *, patience_s: float = 180.0, limit_s: float = 3600.0, progress: bool = True, debug: bool = False
) -> Run:
    """Run the plan's points in one set of worker processes, one a GPU, and give the Run with every row.

    A point that runs out of GPU memory is a row that says so. A point that kills a worker costs one restart: fresh
    workers measure the points after it, then WorkerDied tells of it; whatever else goes wrong ends the run at once.
    `patience_s` bounds the time without any sign from any rank once they are ready, `limit_s` the whole run.
    `progress=False`, or LABKIT_PROGRESS=0 in the environment, shows no bar. `debug=True` measures a plan of one worker
    in this very process, where breakpoints work and the worker's own exception arrives as it is; it loads torch here.

    Raises WorkerRaised, WorkerDied, WorkerHung, LauncherLost, GroundLost (each names rank, GPU, point and log, and
    carries the rows measured so far), NotEnoughGpus, or Interrupted (a KeyboardInterrupt) when the cell is
    interrupted. When it returns or raises, no process of the run is left.
    """
    here = node.here()
    if plan.device == "cuda" and plan.gpus > len(here.gpus):
        shown = f"this node shows {len(here.gpus)}; use replay() for a recorded run"
        raise NotEnoughGpus(f"the plan wants {plan.gpus} GPU(s), {shown}")
    run = Run.create(plan, here)
    if debug:
        from labkit.engine.debug import measure_here

        return measure_here(run)
    receipt, begun, awake, startup_s, launches, state = Receipt(run), time.monotonic(), watch.Awake(), 0.0, 0, "failed"
    point, points, death, session = 0, len(plan.points()), None, None
    bar = _bar(plan, points, progress)
    with Interrupts() as interrupts:
        try:
            while point < points:
                launches += 1
                launched = time.monotonic()
                with Session.lent(plan.worker) as session:
                    limits = {"awake": awake, "patience_s": patience_s, "limit_s": limit_s}
                    follower = watch.Watch(run, launches, session, bar, **limits)
                    try:
                        start(run, session, launches, point)
                        point = follower.follow()
                    except WorkerDied as error:
                        if death or error.point is None:
                            raise
                        death, point = error, error.point + 1
                    finally:
                        with interrupts.later():
                            watch.end(run, launches, session)
                            startup_s += (follower.ready() or time.monotonic()) - launched
            if death:
                raise death
            state = "finished"
        except KeyboardInterrupt:
            if session is not None:
                watch.end(run, launches, session)  # again: it may have come just before the end above
            state = "interrupted"
            raise Interrupted(run) from None
        except OSError as error:  # no process, thread or descriptor is to be had
            state = f"the workers cannot be started or followed: {with_limit(str(error))}"
            raise LauncherLost(state, run=run) from None
        except RunError as error:
            if death not in (None, error):
                error.sentence += f"; before that, {death.sentence}"
            state = error.sentence
            raise
        finally:
            bar.close()
            seconds = time.monotonic() - begun
            run.folder = run.where_now() or run.folder
            run.close(
                state,
                launches=launches,
                seconds=round(seconds, 3),
                startup_seconds=round(startup_s, 3),
                measuring_seconds=round(seconds - startup_s, 3),
                omp_num_threads=omp_num_threads(plan, here),
                **receipt.fields(),
            )
    return run


def start(run: Run, session: Session, launches: int, first_point: int) -> None:
    """Have the agent beside this kernel start the workers for the points from `first_point` on."""
    session.ask(
        folder=str(run.folder),
        launch=launches,
        first_point=first_point,
        workers=run.plan.gpus,
        cwd=os.readlink("/proc/self/cwd"),  # known even where the folder was removed under the kernel
        path=import_path(),
        environment=worker_environment(run, launches),
    )


def omp_num_threads(plan: Plan, here: node.Node) -> int:
    """Give each worker the threads that the user set, or its share of the usable cores; torchrun's default is one."""
    own = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(own) if own.isdecimal() and int(own) else max(1, here.cores // plan.gpus)


def worker_environment(run: Run, launches: int) -> dict[str, str]:
    """Give the workers' environment: the kernel's, without other launchers' variables, on loopback only."""
    return environment() | {
        MARK: run.mark,
        "LABKIT_LAUNCH": str(launches),
        "LABKIT_LAUNCHED": repr(time.monotonic()),
        "OMP_NUM_THREADS": str(omp_num_threads(run.plan, run.node)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # so that indices are nvidia-smi's
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TQDM_DISABLE": "1",
    }


def _bar(plan: Plan, points: int, progress: bool):
    from tqdm.auto import tqdm

    shown = progress and os.environ.get("LABKIT_PROGRESS") != "0"
    return tqdm(total=points, desc=f"{plan.lab}: starting workers", unit="point", disable=not shown)
