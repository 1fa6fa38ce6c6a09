"""What Slurm says of a job and of its queue, in sentences; read with squeue and scontrol, which every cluster has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from labkit.engine.errors import ClusterError

COMMAND_SECONDS = 20.0  # a controller that is busy may take as long
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SUSPENDED")

# Reasons that a job gives for not starting; nobody needs to wait for the impossible ones.
REASONS = {
    "Resources": "the nodes are busy",
    "Priority": "other jobs come first",
    "Dependency": "it waits for another job",
    "JobHeldUser": "it is held; `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it",
    "BeginTime": "it was put off, as after a requeue",
    "ReqNodeNotAvail": "a node that it needs is down or reserved",
    "Nodes": "nodes that it needs are down, drained or reserved",
    "Licenses": "a licence is not free",
    "Reservation": "its reservation has not begun",
}
IMPOSSIBLE = {
    "PartitionNodeLimit": "the partition does not allow as many nodes",
    "PartitionTimeLimit": "the partition does not allow as much time: lower `time_minutes`",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "BadConstraints": "no node fits what was asked for",
    "InvalidAccount": "the account is not valid: correct `account`",
    "InvalidQOS": "the quality of service is not valid: correct `sbatch`",
    "AssocGrpNodeLimit": "your account's limit of nodes is too low",
    "AccountNotAllowed": "the partition does not accept this account",
}
ENDS = {
    "TIMEOUT": "reached its time limit of {limit}; ask for more with `time_minutes`, or measure fewer points",
    "CANCELLED": "was cancelled from outside (scancel)",
    "PREEMPTED": "was preempted: Slurm gave its nodes to another job",
    "NODE_FAIL": "lost a node: Slurm says that it has failed",
    "DEADLINE": "reached its deadline",
    "OUT_OF_MEMORY": "ran out of memory: ask for more with `memory_gb_per_node`",
    "BOOT_FAIL": "could not boot its nodes",
    "FAILED": "has failed",
    "COMPLETING": "is being ended",
    "COMPLETED": "has ended by itself",
    "REQUEUED": "was put back into the queue",
}


@dataclass(frozen=True)
class Job:
    """What Slurm knows of a job: state (upper case, "" where Slurm has forgotten it), reason, partition, limit."""

    number: str
    state: str = ""
    reason: str = ""
    partition: str = ""
    limit: str = ""
    restarts: int = 0  # how often Slurm has put it back into the queue
    preempted: bool = False  # also while it still runs, for the time of grace

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"

    @property
    def is_completing(self) -> bool:
        """Whether its processes are being ended; why, the state tells after that."""
        return self.state == "COMPLETING"

    def why_it_waits(self) -> str:
        """Return state, place in the queue and reason."""
        reason = self.reason.partition(",")[0]
        meaning = f": {REASONS[reason]}" if reason in REASONS else ""
        place = place_in_queue(self)
        queue = f", place {place[0]} of {place[1]} in partition {self.partition}" if place else ""
        return f"job {self.number} is {self.state.lower()}{queue} ({reason or 'no reason given yet'}{meaning})"

    def why_never(self) -> str:
        """Return why the job cannot ever start; "" where it may."""
        reason = self.reason.partition(",")[0]
        if not self.is_waiting or reason not in IMPOSSIBLE:
            return ""
        return f"job {self.number} cannot start ({reason}): {IMPOSSIBLE[reason]}"

    def how_it_ended(self) -> str:
        """Return a sentence on the job's end."""
        if not self.state:
            return f"Slurm does not know job {self.number} any more"
        state = "PREEMPTED" if self.preempted else "REQUEUED" if self.is_waiting else self.state
        how = ENDS.get(state, f"is in the state {self.state}").format(limit=self.limit or "unknown length")
        reason = f" ({self.reason})" if self.reason not in ("", "None", "TimeLimit") and not self.is_waiting else ""
        return f"Slurm's job {self.number} {how}{reason}"


def is_available() -> bool:
    """Whether this machine has Slurm's commands."""
    return all(shutil.which(name) for name in ("srun", "squeue", "scontrol"))


def run_command(*command: str, stdin: str = "") -> subprocess.CompletedProcess:
    """Run one of Slurm's commands. Raises ClusterError where it cannot be run or does not answer."""
    options = {"capture_output": True, "text": True, "errors": "replace", "timeout": COMMAND_SECONDS}
    try:
        return subprocess.run(command, input=stdin, env=clean_environment(), **options)
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
        partition=fields.get("Partition", ""),
        limit=fields.get("TimeLimit", ""),
        restarts=int(fields.get("Restarts", 0)),
        preempted=fields.get("PreemptTime", "None")[:1].isdigit(),
    )


def place_in_queue(waiting: Job) -> tuple[int, int] | None:
    """Return the job's place by priority among those that wait in its partition, and how many wait."""
    answer = run_command(
        "squeue", "--noheader", "--states=PENDING", f"--partition={waiting.partition}", "--sort=-p,i", "-o", "%i"
    )
    numbers = [line.strip() for line in answer.stdout.splitlines()]
    return (numbers.index(waiting.number) + 1, len(numbers)) if waiting.number in numbers else None


def partitions() -> list[str]:
    """Return the names of the cluster's partitions."""
    answer = run_command("sinfo", "--noheader", "-o", "%R")
    return sorted({line.strip() for line in answer.stdout.splitlines() if line.strip()})


def cancel(number: str) -> None:
    """End a job of ours; one that has ended already stays as it is."""
    run_command("scancel", "--quiet", number)
