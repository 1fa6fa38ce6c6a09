"""On a node that others use, too: what another user can reach of a run, and what a batch system's folders do to it."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from faults_plan import Faults
from launches import HERE, soon, the_run

from labkit import node
from labkit.cluster.shared_folder import SharedFolder
from labkit.engine import files, locks
from labkit.engine.reservation import Reservation
from labkit.engine.run import Run
from labkit.repository import REPOSITORY

NOBODY = 65534
IN_CREATE = 0x100
LAUNCH = """
import json, os, sys
from faults_plan import Faults
from labkit.engine.errors import RunError
from labkit.launching import launch
for fault in sys.argv[1:]:
    try:
        print(launch(Faults(faults=("none", fault))).status["state"])
    except RunError as error:
        print(type(error).__name__)
"""


def kernel(*faults: str, code: str = LAUNCH, **environment: str) -> list[str]:
    """Return the lines that a process of its own prints: how its launches have ended."""
    environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{REPOSITORY}"} | environment
    command = [sys.executable, "-c", code, *faults]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def another_user(act, *arguments):
    """Have a process of another user do this all the while; where the tests are no root's, it is the same user."""
    if (process := os.fork()) == 0:
        with suppress(BaseException):
            if os.geteuid() == 0:
                os.setgroups([]), os.setgid(NOBODY), os.setuid(NOBODY)
            act(*arguments)
        os._exit(0)
    try:
        yield
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)


def plant(folder: Path, marker: Path) -> None:
    """Learn the names of files that somebody makes in the folder and removes again, and make pickles of these names."""
    libc = ctypes.CDLL(None)
    events = libc.inotify_init()
    assert libc.inotify_add_watch(events, os.fsencode(folder), IN_CREATE) >= 0
    planted = set()
    while True:
        names = set(re.findall(rb"pytorch-errorfile-\w+\.pickle", os.read(events, 65536)))
        for name in names - planted:
            file = folder / os.fsdecode(name)
            while file.exists():
                continue
            file.write_bytes(b"cposix\nmkdir\n(V%s\ntR." % os.fsencode(marker))
        planted |= names


def test_another_users_file_is_not_run(tmp_path):
    """torch makes, removes and, when a worker has failed, unpickles files of the temporary folder."""
    shared, marker = Path(f"/tmp/labkit-shared-{os.getpid()}"), tmp_path / "code of another user was run"
    shared.mkdir()
    shared.chmod(0o1777)
    try:
        with another_user(plant, shared, marker):
            assert kernel("raise", TMPDIR=str(shared)) == ["WorkerRaised"]
        assert not marker.exists()
        assert not [*shared.glob("*")], "and nothing is left"
    finally:
        subprocess.run(["rm", "-r", str(shared)], check=True)


@pytest.mark.slow
def test_a_long_temporary_folder(tmp_path):
    """The path of a Unix socket has at most 107 characters; batch systems name long folders."""
    folder = tmp_path / ("a batch system's folder " * 8)
    folder.mkdir()
    assert len(str(folder)) > 200
    assert kernel("none", "kill", TMPDIR=str(folder)) == ["finished", "WorkerDied"]
    assert not [*folder.glob("*")]


TEMPORARY = """
import os, sys
from own_plan import Own
from labkit.launching import launch
for folder in sys.argv[1:]:
    os.environ["TMPDIR"] = folder
    print(*launch(Own()).rows["folder"].unique())
"""


@pytest.mark.slow
def test_workers_use_the_users_temporary_folder(tmp_path):
    """That of the kernel at the launch; the agent's private one is for the agent alone."""
    folders = [tmp_path / name for name in ("one", "two")]
    (tmp_path / "own_plan.py").write_text(
        "from dataclasses import dataclass\nfrom faults_plan import Faults\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Own(Faults):\n    worker = 'own_worker'\n"
    )
    (tmp_path / "own_worker.py").write_text(
        "import own_plan, tempfile\n"
        "def measure(worker, point):\n    worker.record(iteration=0, folder=tempfile.gettempdir())\n"
    )
    for folder in folders:
        folder.mkdir()
    paths = os.pathsep.join(map(str, (tmp_path, HERE, REPOSITORY)))
    assert kernel(*map(str, folders), code=TEMPORARY, PYTHONPATH=paths) == [*map(str, folders)]


VALIDATE, NUMBER_OF_KEYS = b"\0" + (0x3C85F7CE).to_bytes(4, "little"), b"\7"  # of torch's TCPStore


def answers_as_a_store(port: int) -> bool:
    """Whether whoever connects to the port is told how many keys are kept there."""
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection, suppress(OSError):
        connection.sendall(VALIDATE + NUMBER_OF_KEYS)
        return len(connection.recv(8)) == 8
    return False


@pytest.mark.slow
def test_no_key_is_kept_where_others_could_read_or_write_it(tmp_path):
    """What the ranks tell each other lies in a private folder; only the links between them listen, on loopback."""
    shared = tmp_path / "shared"
    shared.mkdir()
    environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{REPOSITORY}", "TMPDIR": str(shared)}
    process = subprocess.Popen([sys.executable, "-c", LAUNCH, "sleep"], env=environment)
    try:
        run = the_run(tmp_path, rows=4)
        family = psutil.Process(process.pid).children(recursive=True)
        found = {(link.laddr, member.pid) for member in family for link in member.net_connections() if not link.raddr}
        workers = set(run.rows["pid"])
        assert workers < {member.pid for member in family}
        assert found, "gloo's"
        assert {(address.ip, pid in workers) for address, pid in found} == {("127.0.0.1", True)}
        assert not [address for address, _ in found if answers_as_a_store(address.port)]
        assert [stat.filemode(folder.stat().st_mode) for folder in shared.iterdir()] == ["drwx------"]
    finally:
        process.terminate()
        process.wait()
    soon(lambda: not [member for member in family if member.is_running()])


def test_the_folders_that_a_run_makes_are_private(tmp_path, monkeypatch):
    """All on the way to the run, too: a run's name says who measures what, and when."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "of" / "mine"))
    before = os.umask(0)
    try:
        run = Run.create(Faults(), node.here())
    finally:
        os.umask(before)
    made = [tmp_path / "of", tmp_path / "of" / "mine", run.folder, run.logs]
    assert [stat.filemode(folder.stat().st_mode) for folder in made] == ["drwx------"] * 4


def test_the_folders_that_stations_need_are_private(tmp_path, monkeypatch):
    """They may be made before a run is: the same folders are on the way."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "of" / "mine"))
    before = os.umask(0)
    try:
        desk = SharedFolder(2, ())
    finally:
        os.umask(before)
    made = [tmp_path / "of", tmp_path / "of" / "mine", desk.folder]
    assert [stat.filemode(folder.stat().st_mode) for folder in made] == ["drwx------"] * 3


def makes_a_run(user: int, folder: Path, of: node.Node) -> str:
    """Return what this user is told, who makes a run in the folder: the warnings, or the error."""
    reading, writing = os.pipe()
    if (process := os.fork()) == 0:
        try:
            os.setgroups([]), os.setgid(user), os.setuid(user)
            os.environ["LABKIT_RUNS"] = str(folder)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                Run.create(Faults(), of)
            os.write(writing, " ".join(str(one.message) for one in told).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(process, 0)
    return said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
@pytest.mark.parametrize(
    ("owner", "mode", "said"),
    [
        (NOBODY, 0o700, ""),
        (0, 0o1777, ""),  # as /tmp is: nobody but the owner of a folder in it may rename it
        (NOBODY - 1, 0o1777, f"belongs to user {NOBODY - 1}"),
        (0, 0o777, "every user may write"),
    ],
)
def test_a_folder_of_runs_that_others_can_change_is_told(owner, mode, said):
    here = node.here()
    with TemporaryDirectory(prefix="labkit-shared-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (runs := Path(folder, "runs")).mkdir()
        os.chown(runs, owner, -1)
        runs.chmod(mode)
        told = makes_a_run(NOBODY, runs, here)
        assert said in told
        assert bool(said) == (str(runs) in told)
        assert bool(said) == ("LABKIT_RUNS" in told)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
@pytest.mark.parametrize("user", [0, NOBODY])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("owner", "mode", "said"),
    [
        (0, 0o1777, ""),
        (NOBODY - 1, 0o777, f"belongs to user {NOBODY - 1}, who can rename and replace"),
        (NOBODY - 1, 0o1777, f"belongs to user {NOBODY - 1}, who can rename and replace"),
        (0, 0o777, "every user may write"),
    ],
)
def test_a_folder_of_runs_in_a_folder_that_others_can_change_is_told(user, missing, owner, mode, said):
    """Root, too: its new folder in another user's is renamed by that user, who needs no right to look into it."""
    here = node.here()
    with TemporaryDirectory(prefix="labkit-shared-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (above := Path(folder, "above")).mkdir()
        runs = above / "runs"
        if not missing:
            runs.mkdir(mode=0o700)
            os.chown(runs, user, -1)
        os.chown(above, owner, -1)
        above.chmod(mode)
        told = makes_a_run(user, runs, here)
        assert said in told and told.count("LABKIT_RUNS") == bool(said)
        assert bool(said) == (f"{above} " in told or f"{above}," in told), told


@pytest.fixture
def shared():
    """Return a folder in which every user may make files, as /tmp is one."""
    with TemporaryDirectory(prefix="labkit-shared-", dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def nest(folder: Path, depth: int) -> None:
    """Make a folder that everyone may change, with so many folders in each other."""
    folder.mkdir()
    folder.chmod(0o777)
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    time.sleep(60)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
def test_another_users_folder_with_the_name_of_an_agents_is_left_alone_and_told(shared, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    theirs, mine = shared / f"labkit-agent-{os.geteuid()}-theirs", shared / f"labkit-agent-{os.geteuid()}-mine"
    mine.mkdir(mode=0o700)
    try:
        with another_user(nest, theirs, 3000):
            soon(lambda: theirs.exists() and Path(theirs, *["d"] * 1000).exists())
            with pytest.warns(UserWarning, match=rf"has made {theirs}.*remove it"):
                folder, descriptor = files.private_folder("agent")
        os.close(descriptor)
        assert Path(theirs, *["d"] * 1000).exists() and not mine.exists()
        assert stat.filemode(os.stat(folder).st_mode) == "drwx------"
    finally:
        subprocess.run(["rm", "-r", str(theirs)], check=True)


def hold(file: Path) -> None:
    """Make a file that everyone may change, and hold its lock."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    os.fchmod(descriptor, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    time.sleep(60)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
def test_a_lock_that_another_user_holds_in_ones_name_stops_no_launch(shared, tmp_path, monkeypatch):
    (tmp_path / "gpus.json").write_text(json.dumps({"a": "", "b": ""}))
    monkeypatch.setenv("LABKIT_STAND_IN_GPUS", str(tmp_path / "gpus.json"))
    monkeypatch.setenv("LABKIT_LOCKS", str(shared))
    monkeypatch.setenv("LABKIT_MAX_GPUS", "1")
    file = locks.user_file(shared, 0)
    with another_user(hold, file):
        soon(file.exists)
        made = Reservation(Faults(gpus=1), node.here())
        with pytest.warns(UserWarning, match=rf"{file} cannot be locked.*remove it"):
            made.take(0, lambda text: None)
        made.release()
    assert file.stat().st_uid == NOBODY
