"""What another user of the node sees and reaches of a run, row by row; each row is tried by a process of that user.

| of a run there are            | another user sees                    | another user reaches                        |
| ----------------------------- | ------------------------------------ | ------------------------------------------- |
| its processes                 | their numbers and command lines      | no signal, environment, memory, descriptor  |
| its folder, in a shared one   | its name: which plan, and when       | nothing in it; not its name; not its place  |
| the agent's folder            | its name                             | nothing in it; not its name; not its place  |
| Unix sockets                  | that they are in the agent's folder  | no connection                               |
| its user's locks              | their names                          | nothing: they cannot be opened              |
| its GPUs' locks               | which process holds them             | a lock of an idle GPU, until they end       |
| names planted beforehand:     |                                      |                                             |
|   a link named as the agent's | -                                    | where it leads is neither used nor removed  |
|   a link named as the run     | -                                    | the run takes another name                  |

What listens on loopback, and a planted pickle, are in test_shared_node.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import psutil
import pytest
from faults_plan import Faults
from launches import HERE, soon, the_run

from labkit import node
from labkit.engine import files, locks
from labkit.engine.run import Run
from labkit.repository import REPOSITORY

NOBODY = 65534
LASTING = 5  # processes of a launch of two workers: kernel, agent, forkserver, and the workers
LAUNCH = "from faults_plan import Faults\nfrom labkit.launching import launch\nlaunch(Faults(faults=('none', 'sleep')))"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")


def reached(attacks: dict[str, Callable[[], object]], user: int = NOBODY) -> list[str]:
    """Return which of the attacks succeed when a process of this user tries them in turn."""
    reading, writing = os.pipe()
    if (process := os.fork()) == 0:
        succeeded = []
        try:
            os.setgroups([]), os.setgid(user), os.setuid(user)
            for name, attack in attacks.items():
                try:
                    attack()
                    succeeded.append(name)
                except OSError:
                    continue
            os.write(writing, json.dumps(succeeded).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(process, 0)
    return json.loads(said)


def attacks_on(folder: Path, file: Path, elsewhere: Path) -> dict[str, Callable[[], object]]:
    """Return what can be tried on a folder and a file in it; `elsewhere` is a folder of the attacker."""
    planted = elsewhere / "planted"
    return {
        "list": lambda: os.listdir(folder),
        "read": lambda: file.read_bytes(),
        "append": lambda: file.open("ab").write(b"{}\n"),
        "plant": lambda: (folder / "planted.pickle").write_bytes(b"."),
        "replace": lambda: (planted.write_bytes(b""), os.replace(planted, file)),
        "remove": lambda: file.unlink(),
        "open to all": lambda: os.chmod(folder, 0o777),
        "rename": lambda: folder.rename(elsewhere / "taken"),
        "move away": lambda: folder.rename(folder.with_name("another name")),
    }


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """Return a folder in which every user may make files, as /tmp is one, and in it one of the other user."""
    with TemporaryDirectory(prefix="labkit-shared-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        (folder / "theirs").mkdir()
        os.chown(folder / "theirs", NOBODY, -1)
        (folder / "runs").mkdir()
        (folder / "runs").chmod(0o1777)
        yield folder


@pytest.fixture(scope="module")
def going_on(shared) -> Iterator[SimpleNamespace]:
    """Return a run of root's that goes on, on GPUs that stand in, with all its folders in the shared one."""
    (shared / "gpus.json").write_text(json.dumps({"a": "", "b": ""}))
    places = {"TMPDIR": shared, "LABKIT_LOCKS": shared, "LABKIT_RUNS": shared / "runs"}
    own = {name: str(place) for name, place in places.items()} | {"LABKIT_STAND_IN_GPUS": str(shared / "gpus.json")}
    own |= {"PYTHONPATH": f"{HERE}{os.pathsep}{REPOSITORY}", "LABKIT_MAX_GPUS": "2"}
    process = subprocess.Popen([sys.executable, "-c", LAUNCH], env=os.environ | own, umask=0)
    try:
        run = the_run(shared, rows=2)
        family = psutil.Process(process.pid).children(recursive=True)
        yield SimpleNamespace(run=run, family=[psutil.Process(process.pid), *family])
    finally:
        process.terminate()
        process.wait()
    soon(lambda: not [member for member in family if member.is_running()])


def test_the_attacks_succeed_on_what_is_open(shared):
    """What the other tests find out of reach is reached where a folder is open to all, and belongs to the attacker."""
    folder = shared / "open"
    folder.mkdir()
    (folder / "file").write_text("")
    for one in (folder, folder / "file"):
        os.chown(one, NOBODY, -1)
    attacks = attacks_on(folder, folder / "file", shared / "theirs")
    assert reached({name: attack for name, attack in attacks.items() if name != "move away"}) == [*attacks][:-1]
    shutil.rmtree(shared / "theirs" / "taken")


def test_a_runs_folder_is_out_of_reach(going_on, shared):
    run = going_on.run
    assert run.folder.parent == shared / "runs" and run.folder.name in os.listdir(shared / "runs")
    files = [file for file in run.folder.rglob("*") if file.is_file()]
    assert {run.rows_file(0), run.events_file(0), run.plan_file} <= {*files}
    for file in files:
        assert reached(attacks_on(run.folder, file, shared / "theirs")) == [], file
    assert reached(attacks_on(run.logs, run.events_file(0), shared / "theirs")) == []


def test_the_agents_folder_and_its_socket_are_out_of_reach(going_on, shared):
    (agents,) = shared.glob("labkit-agent-*")
    sockets = [file for file in agents.rglob("*") if file.is_socket()]
    assert sockets, "the forkserver's"
    for file in sockets:
        attacks = attacks_on(agents, file, shared / "theirs")
        attacks["connect"] = lambda file=file: socket.socket(socket.AF_UNIX).connect(str(file))
        assert reached(attacks) == [] and str(file) in listening_sockets()
    named = {link.laddr for member in going_on.family for link in member.net_connections("unix") if link.laddr}
    assert {name for name in named if not name.startswith(f"{agents}/")} == set(), "none that has no folder"


def listening_sockets() -> set[str]:
    """Return the files of Unix sockets that listen. To connect, and send nothing, would end Python's forkserver."""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    return {fields[7] for fields in map(str.split, lines) if len(fields) == 8 and fields[3] == "00010000"}


def test_a_runs_processes_are_seen_and_not_touched(going_on):
    """Of those that stay: while the run began, a process of it may have asked the machine something, and be gone."""
    stayed = 0
    for member in going_on.family:
        proc = Path("/proc", str(member.pid))
        attacks = {
            "command line": lambda proc=proc: (proc / "cmdline").read_bytes(),
            "signal": lambda member=member: os.kill(member.pid, 0),
            "environment": lambda proc=proc: (proc / "environ").read_bytes(),
            "memory": lambda proc=proc: (proc / "mem").open("rb").close(),
            "descriptors": lambda proc=proc: os.listdir(proc / "fd"),
        }
        by_the_other, by_root = reached(attacks), reached(attacks, user=0)
        if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
            assert by_the_other == ["command line"]
            assert {*by_root} >= {"command line", "signal", "environment"}
            stayed += 1
    assert stayed >= LASTING


def test_the_locks_are_read_and_not_changed(going_on, shared):
    gpus = [locks.gpu_file(shared, name) for name in ("a", "b")]
    own = [locks.user_file(shared, number) for number in (0, 1)]
    for file in (*own, *gpus):
        assert locks.holding_pids(file) == [going_on.family[0].pid]
        attacks = attacks_on(file, file, shared / "theirs")
        del attacks["list"], attacks["plant"]
        assert reached(attacks) == (["read"] if file in gpus else []), file
        assert reached({"lock": lambda file=file: lock(file)}) == [], "this run holds it, or it cannot be opened"


def lock(file: Path) -> None:
    """Lock a file that can be read, as the engine does."""
    fcntl.flock(os.open(file, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_another_user_may_lock_an_idle_gpu_and_may_not_own_the_folder(shared, monkeypatch):
    idle = locks.gpu_file(shared, "idle")
    locks.lock(idle).release()
    theirs = {"first": lambda: lock(idle), "second": lambda: lock(idle)}  # one process, two descriptors
    assert reached(theirs) == ["first"]
    locks.lock(idle).release()  # their process has ended, and so has their lock
    monkeypatch.setenv("LABKIT_LOCKS", str(shared / "theirs"))
    with pytest.raises(locks.LocksUnusable, match=r"theirs belongs to \w+, who could remove locks"):
        locks.locks_folder()


def test_a_link_that_has_the_name_of_an_agents_folder_leads_nowhere(shared, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    precious, link = shared / "precious", shared / "labkit-agent-0-planted"
    precious.mkdir()
    (precious / "file").write_text("root's own")
    assert reached({"link": lambda: link.symlink_to(precious)}) == ["link"]
    folder, descriptor = files.private_folder("agent")
    os.close(descriptor)
    os.rmdir(folder)
    assert (precious / "file").read_text() == "root's own" and link.is_symlink() and folder != str(link)


def test_a_link_that_has_the_name_of_a_run_leads_nowhere(shared, monkeypatch):
    """A run's name is its second and its plan, so that another user can have made it before."""
    monkeypatch.setenv("LABKIT_RUNS", str(shared / "runs"))
    of = node.here()
    seconds = [datetime.now() + timedelta(seconds=ahead) for ahead in range(20)]
    links = [shared / "runs" / f"{second:%Y%m%d-%H%M%S}-faults-faults" for second in seconds]
    plant = {link.name: lambda link=link: link.symlink_to(shared / "theirs") for link in links}
    assert len(reached(plant)) == len(links)
    run = Run.create(Faults(), of)
    assert run.folder.name.endswith("-faults-faults-1") and not run.folder.is_symlink()
    assert not {"plan.json", "logs"} & {*os.listdir(shared / "theirs")}
