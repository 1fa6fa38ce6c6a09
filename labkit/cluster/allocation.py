"""The nodes that a launch may use: those of the Slurm allocation in which the kernel runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from labkit.cluster import slurm
from labkit.engine.errors import ClusterError
from labkit.repository import NOTEBOOKS

POLL_SECONDS = 1.0
NOT_YET = ("CONFIGURING", "SUSPENDED")  # states of a job that has its nodes: they boot, or it was stopped
MINUTES = 60  # of the allocation that a launch outside of one advises
# From the first station that ends well to the others' end: they end their workers first, and clear up.
WAIT_SECONDS = 10


@dataclass(frozen=True)
class Allocation:
    """The nodes of one job."""

    number: str
    nodes: int

    def job(self) -> slurm.Job:
        """Return what Slurm knows of the job now. Raises ClusterError where Slurm does not answer."""
        return slurm.job(self.number)

    def srun(self, nodes: int) -> list[str]:
        """Return the command that starts one process on each of so many nodes, whatever else runs there.

        srun ends all of them where one ends badly, and with it is its stdin, which it hands to each.
        """
        return [
            "srun",
            f"--jobid={self.number}",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
            "--overlap",
            "--cpu-bind=none",
            "--mpi=none",
            "--unbuffered",
            "--kill-on-bad-exit=1",
            f"--wait={WAIT_SECONDS}",
        ]


def own_allocation(nodes: int, lab: str) -> Allocation:
    """Return the allocation that the kernel runs in. Raises ClusterError, with the line to type, where there is none.

    One that has too few nodes is none. `lab` is the lesson whose notebook the line for unattended use runs.
    """
    number = os.environ.get("SLURM_JOB_ID", "")
    has = int(os.environ.get("SLURM_JOB_NUM_NODES") or os.environ.get("SLURM_NNODES") or 1)
    if number and has >= nodes:
        return Allocation(number, has)
    partition, gpus = slurm.partition_for_gpus()
    wanted = {"nodes": nodes, "partition": partition, "gpus-per-node": gpus, "time": MINUTES}
    options = " ".join(f"--{name}={value}" for name, value in wanted.items() if value)
    notebook = "".join(f"{file.stem} " for file in NOTEBOOKS.glob(f"[0-9][0-9]_{lab}.ipynb"))
    run = f"make run ARGS='{notebook}--nodes {nodes}'"
    raise ClusterError(
        f"the launch wants {nodes} node{'s' * (nodes > 1)}, and "
        + (f"this allocation (job {number}) has {has}" if number else "this kernel runs in no Slurm allocation")
        + f": type `salloc {options}`, and in its shell `LABKIT_NODES={nodes} make lab` or `{run}`; "
        f'unattended, type `sbatch {options} --wrap "{run}"`'
    )


def running_job(allocation: Allocation, tell: Callable[[str], None], limit_s: float) -> slurm.Job:
    """Return the job as it runs; while it is stopped or its nodes boot, tell so.

    Raises ClusterError where it has ended, and after a wait of `limit_s`.
    """
    begun = time.monotonic()
    while (job := allocation.job()).state in NOT_YET:
        tell(why := f"job {job.number} has its nodes, and does not run yet ({job.state.lower()})")
        if time.monotonic() > begun + limit_s:
            raise ClusterError(f"{why}: waited for {limit_s:.0f} s")
        time.sleep(POLL_SECONDS)
    if not job.is_running:
        raise ClusterError(job.how_it_ended())
    return job
