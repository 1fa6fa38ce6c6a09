"""A Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd, with networks between them.

Where the kernel gives no network namespace, both nodes are on loopback.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
from networks import Networks

PROGRAMS = ("setpriv", "munged", "slurmctld", "slurmd")
PROGRAMS += ("srun", "sbatch", "salloc", "scancel", "scontrol", "squeue", "sinfo")
START_SECONDS = 30.0
# Seen on a busy machine: Slurm still lists a step 30 s after its processes have ended.
SLURM_FORGETS_S = 150.0

CONFIGURATION = """\
ClusterName=two
SlurmctldHost={host}({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
SlurmctldPort={ports[0]}
{listening}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait=5
SlurmdTimeout=300
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=n1 NodeHostname={host} NodeAddr={addresses[0]} Port={ports[1]} CPUs=2 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr={addresses[1]} Port={ports[2]} CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=lab Nodes=n1,n2 Default=YES MaxTime=01:00:00 State=UP PriorityTier=1 GraceTime=3
PartitionName=urgent Nodes=n1,n2 MaxTime=00:30:00 State=UP PriorityTier=10
"""


def why_not() -> str:
    """Return why no cluster can be started here; "" where one can."""
    if os.geteuid():
        return "two slurmd on one machine need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed (Debian: slurm-wlm and munge)" if missing else ""


class TwoNodes:
    """The cluster, from its start to `end`; `daemons` are its processes by name, `variables` the users' environment."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="labkit-slurm-"))
        self.daemons: dict[str, subprocess.Popen] = {}
        self.variables = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        (self.folder / "state").mkdir()
        self.networks = Networks()
        self.linked = self.networks.made
        host = socket.gethostname().partition(".")[0]
        fields = {
            "host": host,
            "folder": self.folder,
            "ports": free_ports(3),
            "addresses": self.networks.addresses if self.linked else ("127.0.0.1", "127.0.0.1"),
            # A daemon listens on the address of its host name, which is not that of the link. munge guards all ports.
            "listening": "" if self.linked else "CommunicationParameters=NoInAddrAny",
        }
        text = CONFIGURATION.format(**fields)
        (self.folder / "slurm.conf").write_text(text)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        try:
            self._start_all(key)
        except BaseException:
            self.end()
            raise

    def _start_all(self, key: Path) -> None:
        names = {"socket": "munge.sock", "pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munge.seed"}
        files = [f"--{option}={self.folder / name}" for option, name in names.items()]
        self.start("munged", "-F", "--force", f"--key-file={key}", *files)
        self._wait_for(lambda: (self.folder / "munge.sock").exists(), "munged")
        self.start("slurmctld", "-D", "-c")
        for name in ("n1", "n2"):
            self.start_node(name)
        self._wait_for(lambda: self.idle() == 2, "two idle nodes")

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node, the second one in its namespace."""
        enter = ["nsenter", f"--net=/run/netns/{self.networks.namespace}"] if self.linked and name == "n2" else []
        self.start(*enter, "slurmd", "-D", "-N", name, known_as=name)

    def start(self, program: str, *options: str, known_as: str = "") -> None:
        """Start a daemon; it holds no pipe of the test's, whose reader would wait for its end."""
        name = known_as or program
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *options],  # also where the test's process is killed
                env=os.environ | self.variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def command(self, *command: str) -> str:
        """Run one of Slurm's commands; return what it printed."""
        environment = os.environ | self.variables
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def idle(self) -> int:
        """Return how many nodes wait for work."""
        try:
            return int(self.command("sinfo", "--noheader", "--states=idle", "--partition=lab", "-o", "%D") or 0)
        except (AssertionError, ValueError):
            return 0

    def allocate(self, nodes: int = 2, *options: str) -> str:
        """Allocate nodes, as salloc does for a shell; return the job's number."""
        environment = os.environ | self.variables
        command = ["salloc", "--no-shell", f"--nodes={nodes}", "--time=20", *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stderr.partition("job allocation ")[2].split()[0]

    def jobs(self) -> list[str]:
        """Return the jobs that wait or run."""
        return self.command("squeue", "--noheader", "-o", "%i").split()

    def steps(self) -> list[str]:
        """Return the job steps that run, such as "3.0"."""
        found = self.command("squeue", "--noheader", "--steps", "-o", "%i").split()
        return [step for step in found if step.rpartition(".")[2].isdecimal()]

    def stations(self, host: str = "") -> list[psutil.Process]:
        """Return the stations on this cluster's nodes, or on one of them; other tests have a cluster of their own."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                station = "labkit.cluster.station" in process.cmdline()  # what it forks has its command
                variables = process.environ() if station and process.name() != "forkserver" else {}
                ours = variables.get("SLURM_CONF") == self.variables["SLURM_CONF"]
                node = variables.get("SLURMD_NODENAME", "")  # srun, whose arguments name the station too, is on none
                found += [process] if ours and node and host in ("", node) else []
        return found

    def release_all(self) -> None:
        """End all jobs, and wait until their nodes are idle."""
        for number in self.jobs():
            self.command("scancel", "--quiet", number)
        self._wait_for(lambda: self.idle() == 2, "two idle nodes")

    def _wait_for(self, found, what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not found():
            assert time.monotonic() < deadline, f"no {what} within {START_SECONDS:.0f} s: {self._said()}"
            time.sleep(0.05)

    def _belongs(self, pid: int) -> bool:
        """Whether the process has a file of this cluster open."""
        with contextlib.suppress(OSError):
            return any(os.readlink(file).startswith(f"{self.folder}/") for file in Path(f"/proc/{pid}/fd").iterdir())
        return False

    def _said(self) -> str:
        return "\n".join(f"{file.name}: {file.read_text()[-500:]}" for file in sorted(self.folder.glob("*.out")))

    def end(self) -> None:
        """End all daemons and every process that they have started; remove the folder."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self.release_all()
        for name in ("slurmctld", "n1", "n2", "munged"):
            if name in self.daemons:
                below = descendants(self.daemons[name].pid)
                self.daemons[name].kill()
                self.daemons[name].wait()
                for process in below:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it has ended since
                if process.name() == "slurmstepd" and self._belongs(process.pid):
                    process.send_signal(signal.SIGKILL)
        self.networks.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def free_ports(count: int) -> list[int]:
    """Return so many ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
