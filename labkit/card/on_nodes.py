"""What `make card ARGS="--nodes 8"` starts: each node of an allocation measures its own card; one report shows all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.card.fleet import NODES, FleetNode, beside_each_other, fleet_csv, fleet_headline, fleet_junit, fleet_status
from labkit.card.fleet import read_node as read
from labkit.card.fleet_html import STYLE, fleet_html
from labkit.card.formats import CSV_FILE, JUNIT_FILE
from labkit.card.publish import announce
from labkit.engine.files import make_private, replace_file
from labkit.engine.interrupts import INTERRUPTED, Interrupts
from labkit.report.kept_reports import keep_earlier_report
from labkit.report.page import write_page

LEAVE_SECONDS = 60.0  # for the nodes to end their launches and to write what they have, after an interrupt
ABORT_SECONDS = 60.0  # for Slurm to kill what is left
# srun ends a step on SIGTERM with SIGKILL, without a word to its processes. This signal it hands on.
INTERRUPT_NODES = signal.SIGUSR1
_OF_TASK = re.compile(r"\s*(\d+): ?(.*)")
_ENDED = re.compile(r"srun: error: .*\btasks? \[?([\d,-]+)\]?: (.*)")


class NoFleet(RuntimeError):
    """There are no such nodes; one sentence that says what to type."""


def allocated_nodes(count: int) -> list[str]:
    """Return the names of the first nodes of this allocation. Raises NoFleet outside one, and where it has too few."""
    job, again = os.environ.get("SLURM_JOB_ID"), f"salloc --nodes={count} --exclusive --gpus-per-node=8 make card"
    again = f'`{again} ARGS="--nodes {count}"`, with the number of GPUs that a node has'
    if not job:
        raise NoFleet(f"the cards of {count} nodes are measured inside a Slurm allocation: {again}")
    command = ["scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", "")]
    try:
        names = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoFleet(f"Slurm does not tell the nodes of job {job}: {error}") from None
    if len(names) < count:
        raise NoFleet(f"this allocation (job {job}) has {len(names)} of {count} nodes; ask for more: {again}")
    return names[:count]


def place_of_node(report: Path) -> Path:
    """Return the folder of this node in the fleet's report. Its card has the node's name; its runs go there, too."""
    name = os.environ["SLURMD_NODENAME"]
    signal.signal(INTERRUPT_NODES, lambda *_: signal.raise_signal(signal.SIGINT))
    folder = report / NODES / name
    os.environ |= {"LABKIT_NODE": name, "LABKIT_RUNS": str(folder / "runs")}
    return folder


def make_fleet(count: int, report: Path, options: Sequence[str], fail_on: str | None) -> int:
    """Measure the cards of so many nodes and write the report; give the status as `make card` does.

    options: of each node's `make card`. Raises NoFleet where there are no such nodes.
    """
    names = allocated_nodes(count)
    announce(keep_earlier_report(report, (), fresh=True))
    make_private(report / NODES)
    _publish([FleetNode(name, why_not="the measurement goes on") for name in names], report)
    endings, interrupted = _measure(names, report, options)
    nodes = beside_each_other([read(name, report, endings.get(name, "")) for name in names])
    _publish(nodes, report)
    print(f"\n{fleet_headline(nodes)}\nreport: {report / 'index.html'}")
    return INTERRUPTED if interrupted else fleet_status(nodes, fail_on)


def _publish(nodes: Sequence[FleetNode], report: Path) -> None:
    replace_file(report / CSV_FILE, fleet_csv(nodes))
    replace_file(report / JUNIT_FILE, fleet_junit(nodes))
    write_page(fleet_html(nodes), report / "index.html", STYLE)


def _measure(names: Sequence[str], report: Path, options: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Run `make card` on each node and show what each says; give how each ended, and whether it was interrupted."""
    last, ends = {}, {}
    with Interrupts() as interrupts:
        with interrupts.later():
            process = _start(names, report, options)
        interrupted = False
        try:
            for line in process.stdout or ():
                _show(line.rstrip(), names, last, ends)
            process.wait()
        except KeyboardInterrupt:
            with interrupts.later():
                interrupted = True
                _end(process)
    whys = {name: " ".join(filter(None, [last.get(name), f"({ends[name]})" if name in ends else ""])) for name in names}
    return {name: "interrupted" if interrupted else why for name, why in whys.items()}, interrupted


def _start(names: Sequence[str], report: Path, options: Sequence[str]) -> subprocess.Popen[str]:
    count, places = len(names), ["--nodelist=" + ",".join(names), f"--jobid={os.environ['SLURM_JOB_ID']}"]
    shape = [
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--overlap",
        "--cpu-bind=none",
        "--mpi=none",
    ]
    survive = ["--kill-on-bad-exit=0", "--wait=0", "--no-kill"]  # a node that fails does not end the others
    card = [sys.executable, "-u", "-m", "labkit.card", "--of-fleet", str(report), *options]
    # Slurm's commands read the variables of the job as options; a launch is to stay on its node.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
    kept.pop("LABKIT_NODES", None)
    try:
        return subprocess.Popen(
            ["srun", *places, *shape, *survive, "--export=ALL", "--label", *card],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # a terminal's interrupt comes to this process alone, which tells the nodes
        )
    except OSError as error:
        raise NoFleet(f"srun cannot be started: {error}") from None


def _show(line: str, names: Sequence[str], last: dict[str, str], ends: dict[str, str]) -> None:
    """Print a line with its node's name; keep the last one of each node, and what srun says of its end."""
    if spoken := _OF_TASK.fullmatch(line):
        name, text = names[int(spoken[1])], spoken[2].strip()
        if text:
            last[name] = text
            print(f"{name}: {text}", flush=True)
        return
    print(line, file=sys.stderr, flush=True)
    if ended := _ENDED.match(line):
        for several in ended[1].split(","):
            first, _, final = several.partition("-")
            ends |= {names[task]: ended[2] for task in range(int(first), int(final or first) + 1)}
    elif line.startswith("srun: error: "):
        ends |= {name: line.removeprefix("srun: error: ") for name in names if name in re.findall(r"[\w.-]+\w", line)}


def _end(process: subprocess.Popen[str]) -> None:
    """Have the nodes end and write what they have; then nothing of them is left, at worst by Slurm's force."""
    process.send_signal(INTERRUPT_NODES)
    for seconds, then in ((LEAVE_SECONDS, process.terminate), (ABORT_SECONDS, process.kill)):
        try:
            process.communicate(timeout=seconds)
            return
        except subprocess.TimeoutExpired:
            then()
    process.wait()
