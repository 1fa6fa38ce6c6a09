"""Two nodes on one machine: network namespaces with a real link between them, for the time of the stations.

The link is a pair of virtual interfaces. The kernel shapes it where a worker asks for it (`tc`, token bucket).
Only root may make them.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from labkit.cluster import namespace_srun
from labkit.cluster.allocation import Allocation
from labkit.cluster.slurm import Job
from labkit.engine.errors import ClusterError
from labkit.node.network import LENT_LINK

PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "bash": "bash",
}  # and Debian's packages
ADDRESSES = ("10.99.0.1", "10.99.0.2")  # nobody else sees them
SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where the programs are, outside a user's PATH
TRIAL_COMMAND = (
    "ip link add name a0 type veth peer name b0 && tc qdisc add dev a0 root tbf rate 9mbit burst 9kb latency 9ms"
)
TRIAL_SECONDS = 10.0


@functools.cache
def why_not() -> str:
    """Return why this machine lends no two nodes; "" where it does."""
    path = search_path()
    missing = {package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None}
    if missing:
        return f"two network namespaces need {', '.join(sorted(missing))}, which this machine does not have"
    if os.geteuid():
        return "only root may make two network namespaces with a shaped link"
    command = ["unshare", "--net", "--", "bash", "-c", TRIAL_COMMAND]
    try:
        trial = subprocess.run(
            command,
            env=os.environ | {"PATH": path},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TRIAL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"two network namespaces cannot be made here ({error})"
    if trial.returncode:
        reason = (trial.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"even root may not make network namespaces with a shaped link here ({reason})"
    return ""


def search_path() -> str:
    """Return PATH with the folders of the system's programs."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM])


@dataclass(frozen=True)
class Namespaces(Allocation):
    """Two network namespaces of this machine in the place of a job's nodes; they live as long as their stations."""

    number: str = "namespaces"
    nodes: int = 2

    def job(self) -> Job:
        """Return a job that runs: no queue is between this kernel and its own machine."""
        return Job(self.number, state="RUNNING")

    def srun(self, nodes: int) -> list[str]:
        """Return the command that starts one process in each namespace."""
        script = [sys.executable, "-P", str(Path(namespace_srun.__file__)), LENT_LINK, ",".join(ADDRESSES)]
        return ["env", f"PATH={search_path()}", *script]


def lend_namespaces(nodes: int) -> Namespaces:
    """Return two namespaces. Raises ClusterError where this machine lends none, or not as many."""
    if nodes != 2:
        raise ClusterError(f"the launch wants {nodes} node(s), and network namespaces are lent as two: set nodes=2")
    if why := why_not():
        raise ClusterError(f"{why}. Launch on a cluster, or replay() a recorded run")
    return Namespaces()
