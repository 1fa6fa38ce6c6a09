"""A plan in, a Run out, on this node: have workers started, follow them, and give every row back or one clear error.

A run may take several launches: each starts workers for the points that are left.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import Any

from labkit import node
from labkit.engine import watch
from labkit.engine.errors import (
    DamagedRun,
    GroundLost,
    Interrupted,
    LauncherLost,
    NotEnoughGpus,
    NotStarted,
    RunError,
    WorkerDied,
)
from labkit.engine.interrupts import Interrupts
from labkit.engine.json_lines import file_bytes
from labkit.engine.launch_settings import Limits
from labkit.engine.messages import StartWorkers
from labkit.engine.plan import Plan
from labkit.engine.processes import MARK_VARIABLE, members
from labkit.engine.progress import LiveLine, ProgressBars
from labkit.engine.reservation import Reservation
from labkit.engine.run import Run
from labkit.engine.sampler import CONDITIONS
from labkit.engine.session import AgentSession, Session, import_path, kernel_environment
from labkit.engine.system_limits import with_limit

LAUNCHED_FOR = "LABKIT_LAUNCHED_FOR"  # set for a notebook that runs unattended: its runs are found again by it
GROWN_MIB = 100  # more memory in use after a launch than before: another program has come meanwhile


def launch_here(plan: Plan, limits: Limits, *, progress: bool, debug: bool = False) -> Run:
    """Run the plan on GPUs or CPU processes of this node, as `labkit.launching.launch` says."""
    here = node.here()
    _require_gpus(plan, here)
    reservation, bars = Reservation(plan, here, first_only=debug), ProgressBars(plan, progress)
    with Interrupts() as interrupts:
        try:
            _wait_for_gpus(reservation, interrupts, bars, limits.limit_s)
            run = Run.create(plan, reservation.node)
            if debug:
                from labkit.engine.debug import measure_here

                return measure_here(run)
            usage = NodeUsage(run, reservation)
            Launches(run, usage, bars, limits).run_all(interrupts)
        finally:
            with interrupts.later():
                reservation.release()
                bars.close()
    return run


def _wait_for_gpus(reservation: Reservation, interrupts: Interrupts, bars: ProgressBars, limit_s: float) -> None:
    try:
        reservation.take(limit_s, bars.show_waiting)
    except KeyboardInterrupt:
        with interrupts.later():
            reservation.release()
        raise NotStarted("interrupted while it waited for GPUs; nothing was started") from None
    finally:
        bars.remove_line()


def _require_gpus(plan: Plan, here: node.Node) -> None:
    if plan.device == "cuda" and plan.gpus > len(here.gpus):
        shown = f"this node shows {len(here.gpus)}{node.why_no_more_gpus()}; use replay() for a recorded run"
        raise NotEnoughGpus(f"the plan wants {plan.gpus} GPU(s), {shown}")


class Launches:
    """The launches that one run takes, and what they have in common: clocks, limits, resource usage, progress bar.

    Attributes: `state` (finished, failed or interrupted) and `why` (what failed, in a sentence), both as in the status;
    `count` (launches so far).
    """

    follower: type[watch.Watch] = watch.Watch

    def __init__(self, run: Run, usage: ResourceUsage, bars: ProgressBars, limits: Limits):
        self.run, self.usage, self.bars, self.limits = run, usage, bars, limits
        self.live = LiveLine(run, bars.show_below)
        self.begun, self.awake = time.monotonic(), watch.AwakeClock()
        self.state, self.why, self.count, self.startup_s = "failed", "", 0, 0.0
        self.death: WorkerDied | None = None  # the one that a restart has answered
        self.session: Session | None = None  # of the newest launch

    def run_all(self, interrupts: Interrupts) -> None:
        """Measure every point of the run, and write down how it ended."""
        try:
            self._measure_all(interrupts)
        except KeyboardInterrupt:
            with interrupts.later():
                self.end()  # again: the interrupt may have come just before the launch was ended
            self.state = "interrupted"
            raise Interrupted(self.run) from None
        except DamagedRun as error:  # a file of what the ranks report
            self.why = f"{error}, and the run cannot be followed without it. Move it away, and launch again"
            raise GroundLost(self.why, run=self.run) from None
        except OSError as error:  # no process, thread or descriptor is to be had
            self.why = f"the workers cannot be started or followed: {with_limit(str(error))}"
            raise LauncherLost(self.why, run=self.run) from None
        except RunError as error:
            self.why = self._with_earlier_death(error)
            raise
        finally:
            self._close()

    def _measure_all(self, interrupts: Interrupts) -> None:
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
        with self.borrow_session() as session:
            self.session = session
            clocks = {"interrupts": interrupts, "awake": self.awake, "limits": self.limits}
            follower = self.follower(self.run, self.count, session, self.bars.points_bar(), self.live, **clocks)
            try:
                interrupts.raise_if_dropped()
                self.start_workers(session, first_point)
                return follower.follow()
            finally:
                with interrupts.later():
                    self.end()
                    self.startup_s += (follower.ready() or time.monotonic()) - launched

    def borrow_session(self) -> AbstractContextManager[Session]:
        """Lend the process that starts the workers of one launch."""
        return AgentSession.borrow(self.run.plan.worker)

    def start_workers(self, session: Session, first_point: int) -> None:
        """Have the agent beside this kernel start the newest launch's workers for the points from `first_point` on."""
        run = self.run
        gpus = [(gpu.index, gpu.uuid) for gpu in run.node.gpus[: run.plan.gpus]] if run.plan.device == "cuda" else []
        request = StartWorkers(
            kind="start",
            folder=str(run.folder),
            launch=self.count,
            first_point=first_point,
            workers=run.plan.gpus,
            cwd=os.readlink("/proc/self/cwd"),  # known even where the folder was removed under the kernel
            path=import_path(),
            sampled=None if os.environ.get(CONDITIONS) == "0" else gpus,  # whose counters the agent reads
            environment=worker_environment(run, self.count),
        )
        session.send_request(request)

    def end(self) -> None:
        """End every process of the newest launch."""
        if self.session is not None:
            self.follower.end(self.run, self.count, self.session)

    def _with_earlier_death(self, error: RunError) -> str:
        """Add to the error's sentence the worker's death that a restart has answered; return the sentence."""
        if self.death not in (None, error):
            error.sentence += f"; before that, {self.death.sentence}"
        return error.sentence

    def _close(self) -> None:
        """Write down how the run ended and what it took."""
        self.bars.close(finished=self.state == "finished")
        seconds, run = time.monotonic() - self.begun, self.run
        run.close(
            self.state,
            why=self.why,
            launches=self.count,
            seconds=round(seconds, 3),
            startup_seconds=round(self.startup_s, 3),
            measuring_seconds=round(seconds - self.startup_s, 3),
            omp_num_threads=omp_num_threads(run.plan, run.node, run.node_count),
            **self.usage.status_fields(),
        )


class ResourceUsage:
    """What a run took and gave back, as its status tells it; made before the workers start."""

    def __init__(self, run: Run):
        self.run = run

    def status_fields(self) -> dict[str, Any]:
        """Return what was measured, processes started and left, and what `more_fields` adds.

        `launched_for`, where it is there, is the unattended run that the launch belongs to.
        """
        more_fields = self.more_fields()
        return {
            "measured": self.run.tally(),
            "processes_started": sum(map(self.start_count, range(self.run.plan.gpus))),
            "processes_left": self.processes_left(),
            **more_fields,
            **launched_for(),
        }

    def processes_left(self) -> int:
        """Return how many processes of the run live."""
        return len(members(self.run))

    def more_fields(self) -> dict[str, Any]:
        """Return what is known beyond processes."""
        return {}

    def start_count(self, rank: int) -> int:
        """Return how many processes were started as this rank."""
        try:
            return file_bytes(self.run.events_file(rank)).count(b'"event": "started"')
        except (OSError, DamagedRun):
            return 0


class NodeUsage(ResourceUsage):
    """What a run on this node took and gave back: also GPU memory, and who else was there."""

    def __init__(self, run: Run, reservation: Reservation):
        super().__init__(run)
        self.reservation = reservation
        self.gpus = run.node.gpus[: run.plan.gpus] if run.plan.device == "cuda" else ()
        self.before_mib = node.used_mib(self.gpus)

    def more_fields(self) -> dict[str, Any]:
        """Return GPU memory in use before and after (MiB, by index), and other holders.

        `contaminated` has the indices of GPUs that other programs held before or after the launch.
        """
        after_mib = node.used_mib(self.gpus)
        if any(mib > self.before_mib.get(gpu, mib) + GROWN_MIB for gpu, mib in after_mib.items()) or not self.gpus:
            self.reservation.update_holders()
        return {
            "gpu_mib_before": {str(gpu): mib for gpu, mib in self.before_mib.items()},
            "gpu_mib_after": {str(gpu): mib for gpu, mib in after_mib.items()},
            "held_by_others": self.reservation.held,
            "contaminated": sorted(self.reservation.shared),
        }


def launched_for() -> dict[str, str]:
    """Return the unattended run that this process belongs to, as `launched_for`; {} where there is none."""
    return {"launched_for": os.environ[LAUNCHED_FOR]} if LAUNCHED_FOR in os.environ else {}


def omp_num_threads(plan: Plan, here: node.Node, nodes: int = 1) -> int:
    """Return each worker's threads: as many as the user set, or its share of the usable cores (torchrun: one)."""
    requested = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    share = max(1, int(here.usable_cores * nodes // plan.gpus))  # rounded down: above a quota, all threads stand still
    return int(requested) if requested.isdecimal() and int(requested) else share


def worker_environment(run: Run, launches: int) -> dict[str, str]:
    """Return the workers' environment: the kernel's, without other launchers' variables, on loopback only."""
    return kernel_environment() | {
        MARK_VARIABLE: run.mark,
        "LABKIT_LAUNCH": str(launches),
        "LABKIT_LAUNCHED": repr(time.monotonic()),
        "OMP_NUM_THREADS": str(omp_num_threads(run.plan, run.node, run.node_count)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # so that indices are nvidia-smi's
        **_visible_devices(run),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TQDM_DISABLE": "1",
    }


def _visible_devices(run: Run) -> dict[str, str]:
    """Return the variable that shows the workers the GPUs of their run, where these may not be the kernel's first ones.

    Of the MIG slices that the kernel sees, those of its run may not be the first, because one counts for each GPU.
    Processes that stand in for GPUs see none: parts of torch wait for a GPU that they see, such as some of DDP's hooks.
    """
    gpus = run.node.gpus[: run.plan.gpus]
    if gpus != node.here().gpus[: run.plan.gpus] or any((gpu.uuid or "").startswith("MIG-") for gpu in gpus):
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid or str(gpu.index) for gpu in gpus)}
    return {} if run.plan.device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
