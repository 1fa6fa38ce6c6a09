"""What Slurm says of a job, in sentences; read with scontrol and sinfo, which every cluster has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from labkit.engine.errors import ClusterError

COMMAND_SECONDS = 20.0  # a controller that is busy may take as long
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD")  # of a job that was put back into the queue
ENDS = {
    "TIMEOUT": "reached its time limit of {limit}; ask for more with `--time`, or measure fewer points",
    "CANCELLED": "was cancelled from outside (scancel)",
    "PREEMPTED": "was preempted: Slurm gave its nodes to another job",
    "NODE_FAIL": "lost a node: Slurm says that it has failed",
    "DEADLINE": "reached its deadline",
    "OUT_OF_MEMORY": "ran out of memory: ask for more with `--mem`",
    "BOOT_FAIL": "could not boot its nodes",
    "FAILED": "has failed",
    "COMPLETING": "is being ended",
    "COMPLETED": "has ended by itself",
    "REQUEUED": "was put back into the queue",
}


@dataclass(frozen=True)
class Job:
    """What Slurm knows of a job: state (upper case, "" where Slurm has forgotten it), reason, time limit."""

    number: str
    state: str = ""
    reason: str = ""
    limit: str = ""
    restarts: int = 0  # how often Slurm has put it back into the queue
    preempted: bool = False  # also while it still runs, for the time of grace

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"

    @property
    def is_completing(self) -> bool:
        """Whether its processes are being ended; why, the state tells after that."""
        return self.state == "COMPLETING"

    def how_it_ended(self) -> str:
        """Return a sentence on the job's end."""
        if not self.state:
            return f"Slurm does not know job {self.number} any more"
        waits = self.state in WAITING
        state = "PREEMPTED" if self.preempted else "REQUEUED" if waits else self.state
        how = ENDS.get(state, f"is in the state {self.state}").format(limit=self.limit or "unknown length")
        reason = f" ({self.reason})" if self.reason not in ("", "None", "TimeLimit") and not waits else ""
        return f"Slurm's job {self.number} {how}{reason}"


def is_available() -> bool:
    """Whether this machine has Slurm's commands."""
    return all(shutil.which(name) for name in ("srun", "scontrol"))


def run_command(*command: str) -> subprocess.CompletedProcess:
    """Run one of Slurm's commands. Raises ClusterError where it cannot be run or does not answer."""
    options = {"capture_output": True, "text": True, "errors": "replace", "timeout": COMMAND_SECONDS}
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, env=clean_environment(), **options)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"Slurm does not answer: `{command[0]}` took more than {COMMAND_SECONDS:.0f} s") from None
    except OSError as error:
        raise ClusterError(f"`{command[0]}` cannot be run: {error}") from None


def clean_environment() -> dict[str, str]:
    """Return the environment without the variables of the kernel's own job, which Slurm's commands read as options."""
    allowed = {"SLURM_CONF"}
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in allowed}


def job(number: str) -> Job:
    """Return what Slurm knows of the job now. Raises ClusterError where Slurm does not answer."""
    answer = run_command("scontrol", "--oneliner", "show", "job", number)
    if answer.returncode:
        if "Invalid job id" in answer.stderr:
            return Job(number)
        raise ClusterError(f"Slurm does not answer: {answer.stderr.strip()}")
    fields = dict(re.findall(r"(\w+)=(\S*)", answer.stdout))
    return Job(
        number,
        state=fields.get("JobState", ""),
        reason=fields.get("Reason", "").removesuffix("None"),
        limit=fields.get("TimeLimit", ""),
        restarts=int(fields.get("Restarts", 0)),
        preempted=fields.get("PreemptTime", "None")[:1].isdigit(),
    )


def partition_for_gpus() -> tuple[str, int]:
    """Return which partition has nodes with GPUs, "" for the default one, and how many GPUs each; none: ("", 0)."""
    shown = run_command("sinfo", "--noheader", "-o", "%P %G").stdout
    found = re.findall(r"^(\S+?)(\*?) .*?\bgpu:(?:[^:,(\s]+:)?(\d+)", shown, re.M)
    choices = [("" if default else name, int(gpus)) for name, default, gpus in found]
    return min(choices, default=("", 0))  # the default one sorts first
