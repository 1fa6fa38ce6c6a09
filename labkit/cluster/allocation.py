"""The nodes that a launch may use: those of the allocation that the kernel runs in, or of a job that it submits."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from labkit.cluster import job_script, slurm
from labkit.engine.errors import ClusterError
from labkit.engine.launch_settings import Settings, cluster_name

POLL_SECONDS = 1.0
INSTALL_ADVICE = "`.venv/bin/python -m pip install submitit==1.5.4`, or `make run CLUSTER=1`, installs it"
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
    """Submit a job for so many nodes through submitit; its files go to `folder`, which all nodes see.

    Raises ClusterError where submitit is missing, or Slurm refuses the job.
    """
    try:
        from submitit import SlurmExecutor
        from submitit.core.utils import CommandFunction, FailedJobError, FailedSubmissionError
    except ImportError:
        raise ClusterError(
            f"a job is submitted through the package submitit, which is missing: {INSTALL_ADVICE}"
        ) from None
    command = [settings.python or sys.executable, "-P", str(Path(job_script.__file__)), str(60 * settings.keep_minutes)]
    with _without_own_job(), contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it then raises
        try:
            executor = SlurmExecutor(folder=folder, max_num_timeout=0, python=settings.python or None)
            executor.update_parameters(**_submitit_parameters(nodes, settings))
            job = executor.submit(CommandFunction(command, verbose=False))
        except (FailedJobError, FailedSubmissionError) as error:
            raise ClusterError(_refusal(str(error))) from None
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(f"the job cannot be submitted: {error}") from None
    return Allocation(str(job.job_id), nodes, submitted=True)


def _submitit_parameters(nodes: int, settings: Settings) -> dict[str, Any]:
    """Return what submitit calls the settings; it leaves out what is None."""
    return {
        "job_name": "labkit",
        "nodes": nodes,
        "ntasks_per_node": 1,
        "time": settings.time_minutes,
        "partition": settings.partition or None,
        "account": settings.account or None,
        "gpus_per_node": settings.gpus_per_node or None,
        "cpus_per_task": settings.cpus_per_node or None,
        "mem": f"{settings.memory_gb_per_node}GB" if settings.memory_gb_per_node else None,
        "setup": [*settings.setup] or None,
        "wckey": None,
        "use_srun": False,  # the job's own process is needed once, on its first node
        "stderr_to_stdout": True,
        # A job that Slurm started again would find no kernel. submitit's own signal would end the job before its time.
        "additional_parameters": {"no-requeue": True, "signal": "CONT@1", **dict(map(_sbatch_option, settings.sbatch))},
    }


def _sbatch_option(text: str) -> tuple[str, Any]:
    """Return the name and value of an option such as "--qos=long"; True for one without a value."""
    name, equals, value = text.removeprefix("--").partition("=")
    if not text.startswith("--") or not name or " " in name:
        raise ClusterError(f'cluster.toml: sbatch has {text!r}; write each option as "--name=value"')
    return name, value if equals else True


def _refusal(output: str) -> str:
    """Return why Slurm refused a job, and what would be right."""
    lines = re.findall(r"error: (.*)", output) or [line for line in output.splitlines() if line.strip()][-1:]
    why = "; ".join(dict.fromkeys(line.removeprefix("Batch job submission failed: ") for line in lines))
    partitions = f"; the partitions are {', '.join(slurm.partitions())}" if "partition" in why.lower() else ""
    return f"Slurm refused the job: {why or 'it did not say why'}{partitions}"


@contextlib.contextmanager
def _without_own_job() -> Iterator[None]:
    """Hide the job that the kernel itself runs in: sbatch reads its variables as options."""
    job_variables = {name: value for name, value in os.environ.items() if name not in slurm.clean_environment()}
    for name in job_variables:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(job_variables)


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
