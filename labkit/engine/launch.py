"""From a plan to a Run: have workers started, follow them, and give every row back or one clear error."""

from __future__ import annotations

import os
import time

from labkit import node
from labkit.engine import watch
from labkit.engine.bars import Bars
from labkit.engine.errors import Interrupted, LauncherLost, NotEnoughGpus, NotStarted, RunError, WorkerDied, with_limit
from labkit.engine.interrupts import Interrupts
from labkit.engine.live import LiveLine
from labkit.engine.plan import Plan, limit_from_environment
from labkit.engine.processes import MARK
from labkit.engine.receipt import Receipt
from labkit.engine.reservation import Reservation
from labkit.engine.run import Run
from labkit.engine.sampler import CONDITIONS
from labkit.engine.session import Session, environment, import_path


def launch(
    plan: Plan, *, patience_s: float = 180.0, limit_s: float = 3600.0, progress: bool = True, debug: bool = False
) -> Run:
    """Run the plan's points in one set of worker processes, one a GPU, and return the Run with every row.

    A point that runs out of GPU memory is a row that says so. A point that kills a worker costs one restart: fresh
    workers measure the points after it, then WorkerDied tells of it; whatever else goes wrong ends the run at once.
    `patience_s` bounds the time without any sign from any rank once they are ready, `limit_s` the whole run.
    `progress=False`, or LABKIT_PROGRESS=0 in the environment, shows no bar. `debug=True` measures a plan of one worker
    in this very process, where breakpoints work and the worker's own exception arrives as it is; it loads torch here.

    A launch holds its GPUs alone among all launches on this node: it takes free ones, else it waits, for `limit_s` at
    most, and shows place and owners. LABKIT_MAX_GPUS and LABKIT_MAX_MINUTES in the environment bound what each user
    holds, and how long a run takes. Where another program holds a GPU, too, `run.source` says so.

    Raises WorkerRaised, WorkerDied, WorkerHung, LauncherLost, GroundLost (each names rank, GPU, point and log, and
    carries the rows measured so far), NotEnoughGpus, or Interrupted (a KeyboardInterrupt) when the cell is
    interrupted; NotStarted, another one, while it waits for GPUs. When it returns or raises, no process of the run is
    left, and its GPUs are free.
    """
    here = node.here()
    _require_gpus(plan, here)
    if (minutes := limit_from_environment("LABKIT_MAX_MINUTES")) is not None:
        limit_s = min(limit_s, 60.0 * minutes)
    reservation, bars = Reservation(plan, here, first_only=debug), Bars(plan, progress)
    with Interrupts() as interrupts:
        try:
            _wait_for_gpus(reservation, interrupts, bars, limit_s)
            run = Run.create(plan, reservation.node)
            if debug:
                from labkit.engine.debug import measure_here

                return measure_here(run)
            _measure(Launches(run, reservation, bars, patience_s=patience_s, limit_s=limit_s), interrupts)
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


def _measure(launches: Launches, interrupts: Interrupts) -> None:
    """Measure all points of a run, and write down how it ended."""
    try:
        launches.measure_all(interrupts)
    except KeyboardInterrupt:
        with interrupts.later():
            launches.end()  # again: the interrupt may have come just before the launch was ended
        launches.state = "interrupted"
        raise Interrupted(launches.run) from None
    except OSError as error:  # no process, thread or descriptor is to be had
        launches.state = f"the workers cannot be started or followed: {with_limit(str(error))}"
        raise LauncherLost(launches.state, run=launches.run) from None
    except RunError as error:
        launches.state = launches.told_with_earlier_death(error)
        raise
    finally:
        launches.close()


def _require_gpus(plan: Plan, here: node.Node) -> None:
    if plan.device == "cuda" and plan.gpus > len(here.gpus):
        shown = f"this node shows {len(here.gpus)}; use replay() for a recorded run"
        raise NotEnoughGpus(f"the plan wants {plan.gpus} GPU(s), {shown}")


class Launches:
    """The launches that one run takes, and what they have in common: clocks, limits, receipt, progress bar.

    Attributes: `state` (how the run ended, as its status tells it), `count` (launches so far).
    """

    def __init__(self, run: Run, reservation: Reservation, bars: Bars, *, patience_s: float, limit_s: float):
        self.run, self.bars, self.patience_s, self.limit_s = run, bars, patience_s, limit_s
        self.live = LiveLine(run, bars.show_below)
        self.receipt, self.begun, self.awake = Receipt(run, reservation), time.monotonic(), watch.Awake()
        self.state, self.count, self.startup_s = "failed", 0, 0.0
        self.death: WorkerDied | None = None  # the one that a restart has answered
        self.session: Session | None = None  # of the newest launch

    def measure_all(self, interrupts: Interrupts) -> None:
        """Measure every point. Raises WorkerDied where one of them killed a worker, after all others are measured."""
        point, points = 0, len(self.run.plan.points())
        while point < points:
            try:
                point = self._launch(point, interrupts)
            except WorkerDied as error:
                if self.death or error.point is None:
                    raise
                self.death, point = error, error.point + 1
        if self.death:
            raise self.death
        self.state = "finished"

    def _launch(self, first_point: int, interrupts: Interrupts) -> int:
        """Measure the points from `first_point` on in fresh workers; return the first point that is still to be done.

        When it returns or raises, the workers have ended.
        """
        self.count += 1
        launched = time.monotonic()
        with Session.lent(self.run.plan.worker) as session:
            self.session = session
            limits = {"awake": self.awake, "patience_s": self.patience_s, "limit_s": self.limit_s}
            follower = watch.Watch(self.run, self.count, session, self.bars.points(), self.live, **limits)
            try:
                start(self.run, session, self.count, first_point)
                return follower.follow()
            finally:
                with interrupts.later():
                    self.end()
                    self.startup_s += (follower.ready() or time.monotonic()) - launched

    def end(self) -> None:
        """End every process of the newest launch."""
        if self.session is not None:
            watch.end(self.run, self.count, self.session)

    def told_with_earlier_death(self, error: RunError) -> str:
        """Add to the error's sentence the worker's death that a restart has answered; return the sentence."""
        if self.death not in (None, error):
            error.sentence += f"; before that, {self.death.sentence}"
        return error.sentence

    def close(self) -> None:
        """Write down how the run ended and what it took."""
        self.bars.close(finished=self.state == "finished")
        seconds, run = time.monotonic() - self.begun, self.run
        run.folder = run.where_now() or run.folder
        run.close(
            self.state,
            launches=self.count,
            seconds=round(seconds, 3),
            startup_seconds=round(self.startup_s, 3),
            measuring_seconds=round(seconds - self.startup_s, 3),
            omp_num_threads=omp_num_threads(run.plan, run.node),
            **self.receipt.fields(),
        )


def start(run: Run, session: Session, launches: int, first_point: int) -> None:
    """Have the agent beside this kernel start the workers for the points from `first_point` on."""
    session.ask(
        folder=str(run.folder),
        launch=launches,
        first_point=first_point,
        workers=run.plan.gpus,
        cwd=os.readlink("/proc/self/cwd"),  # known even where the folder was removed under the kernel
        path=import_path(),
        sampled=_sampled(run),
        environment=worker_environment(run, launches),
    )


def _sampled(run: Run) -> list[tuple[int, str | None]] | None:
    """Return the index and UUID of each GPU whose counters the agent reads; None with LABKIT_CONDITIONS=0."""
    if os.environ.get(CONDITIONS) == "0":
        return None
    return [(gpu.index, gpu.uuid) for gpu in run.node.gpus[: run.plan.gpus]] if run.plan.device == "cuda" else []


def omp_num_threads(plan: Plan, here: node.Node) -> int:
    """Return each worker's threads: as many as the user set, or its share of the usable cores (torchrun: one)."""
    requested = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(requested) if requested.isdecimal() and int(requested) else max(1, here.cores // plan.gpus)


def worker_environment(run: Run, launches: int) -> dict[str, str]:
    """Return the workers' environment: the kernel's, without other launchers' variables, on loopback only."""
    return environment() | {
        MARK: run.mark,
        "LABKIT_LAUNCH": str(launches),
        "LABKIT_LAUNCHED": repr(time.monotonic()),
        "OMP_NUM_THREADS": str(omp_num_threads(run.plan, run.node)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # so that indices are nvidia-smi's
        **_visible(run),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TQDM_DISABLE": "1",
    }


def _visible(run: Run) -> dict[str, str]:
    """Return the variable that shows the workers the GPUs of their run, where these are not the kernel's first ones."""
    gpus = run.node.gpus[: run.plan.gpus]
    if gpus == node.here().gpus[: run.plan.gpus]:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid or str(gpu.index) for gpu in gpus)}
