"""The nodes that a launch may use: those of the allocation that the kernel runs in, or of a job that it submits."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from labkit.cluster import job_script, slurm
from labkit.engine.errors import ClusterError
from labkit.engine.launch_settings import Settings, cluster_name

POLL_SECONDS = 1.0
# From the first station that ends well to the others' end: they end their workers first, and clear up.
WAIT_SECONDS = 10


@dataclass(frozen=True)
class Allocation:
    """Nodes of one job; `submitted` where this kernel has asked for them, and gives them back."""

    kind: ClassVar[str] = "slurm"

    number: str
    nodes: int
    submitted: bool = False

    def job(self) -> slurm.Job:
        """Return what Slurm knows of the job now. Raises ClusterError where Slurm does not answer."""
        return slurm.job(self.number)

    def release(self) -> None:
        """Give submitted nodes back; those of the kernel's own allocation stay."""
        if self.submitted:
            with contextlib.suppress(ClusterError):
                slurm.cancel(self.number)

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


def own_allocation(nodes: int) -> Allocation | None:
    """Return the allocation that the kernel runs in. Raises ClusterError where it has too few nodes."""
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number or cluster_name() == "submit":
        return None
    has = int(os.environ.get("SLURM_JOB_NUM_NODES") or os.environ.get("SLURM_NNODES") or 1)
    if has < nodes:
        raise ClusterError(
            f"the launch wants {nodes} nodes, and this allocation (job {number}) has {has}: ask for more, as with "
            f"`salloc --nodes={nodes}`, or set LABKIT_CLUSTER=submit to have a job of its own submitted"
        )
    return Allocation(number, has)


def submit_job(nodes: int, settings: Settings, folder: Path) -> Allocation:
    """Submit a job for so many nodes; its log goes to `folder`, which all nodes see.

    Raises ClusterError where Slurm refuses the job.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep = [settings.python or sys.executable, "-P", str(Path(job_script.__file__)), str(60 * settings.keep_minutes)]
    script = "\n".join(["#!/bin/bash", *settings.setup, f"exec {shlex.join(keep)}", ""])
    options = ["--parsable", f"--output={folder}/%j.log", *_sbatch_options(nodes, settings)]
    answer = slurm.run_command("sbatch", *options, stdin=script)
    if answer.returncode:
        raise ClusterError(_refusal(answer.stderr))
    return Allocation(answer.stdout.strip().partition(";")[0], nodes, submitted=True)  # "number;cluster"


def _sbatch_options(nodes: int, settings: Settings) -> list[str]:
    """Return what the settings ask for; Slurm's defaults hold for what they leave out."""
    for option in settings.sbatch:
        if not re.match(r"--\w[\w-]*(=|$)", option):
            raise ClusterError(f'cluster.toml: sbatch has {option!r}; write each option as "--name=value"')
    wanted = {
        "nodes": nodes,
        "ntasks-per-node": 1,
        "time": settings.time_minutes,
        "partition": settings.partition,
        "account": settings.account,
        "gpus-per-node": settings.gpus_per_node,
        "cpus-per-task": settings.cpus_per_node,
        "mem": f"{settings.memory_gb_per_node}G" if settings.memory_gb_per_node else "",
    }
    named = [f"--{name}={value}" for name, value in wanted.items() if value]
    # A job that Slurm started again would find no kernel.
    return ["--job-name=labkit", "--no-requeue", *named, *settings.sbatch]


def _refusal(output: str) -> str:
    """Return why Slurm refused a job, and what would be right."""
    lines = re.findall(r"error: (.*)", output) or [line for line in output.splitlines() if line.strip()][-1:]
    why = "; ".join(dict.fromkeys(line.removeprefix("Batch job submission failed: ") for line in lines))
    partitions = f"; the partitions are {', '.join(slurm.partitions())}" if "partition" in why.lower() else ""
    return f"Slurm refused the job: {why or 'it did not say why'}{partitions}"


def wait_for_nodes(allocation: Allocation, tell: Callable[[str], None], limit_s: float) -> slurm.Job:
    """Wait until the job runs, and tell its state, place and reason meanwhile; return it as it runs.

    Raises ClusterError where it ends before that, can never start, or waits longer than `limit_s`.
    """
    begun = time.monotonic()
    while not (job := allocation.job()).is_running:
        if why := job.why_never():
            raise ClusterError(why)
        if not job.is_waiting:
            raise ClusterError(job.how_it_ended() + " before it had started" * allocation.submitted)
        why = job.why_it_waits()
        tell(why)
        if time.monotonic() > begun + limit_s:
            cancelled = "; the job was cancelled" * allocation.submitted
            raise ClusterError(f"no nodes came within {limit_s:.0f} s: {why}{cancelled}")
        time.sleep(POLL_SECONDS)
    return job
