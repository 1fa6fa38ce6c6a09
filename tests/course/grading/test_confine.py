"""What a confined process can reach, with real processes: its limits end it, and the grader's things are not there."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from labkit.course.grading import confine, confined_entry, memory_group, process_tree
from labkit.course.grading.confine import Limits
from labkit.repository import REPOSITORY

pytestmark = pytest.mark.usefixtures("confined")
WRITE = "import os, sys\ndef tell(text): os.write(int(sys.argv[1]), str(text).encode())\n"


def run(body: str, limits: Limits | None = None):
    return confine.run({"script.py": WRITE + body}, "script.py", limits or Limits(10))


def test_results_and_prints_come_back_apart():
    ended = run("print('hello'); tell('a result')")
    assert (ended.results, ended.printed.strip(), ended.status) == ("a result", "hello", 0)


def test_a_long_answer_arrives_also_where_its_process_starts_late(monkeypatch):
    """A pipe holds 64 KiB."""
    late = ["/bin/sh", "-c", 'sleep 0.5; exec "$@"', "late"]
    entrance = confine._entrance
    monkeypatch.setattr(confine, "_entrance", lambda: [*late, *entrance()])
    assert run(f"{'# long' * 50_000}\ntell('here')", Limits(5)).results == "here"


calls_are_refused = pytest.mark.skipif(
    os.uname().machine not in confined_entry.MACHINES, reason="its numbers of system calls are not known"
)


@calls_are_refused
def test_memory_that_counts_for_no_process_is_refused():
    """A process may fill it without mapping it for long."""
    body = """
import ctypes, fcntl, mmap, socket
libc = ctypes.CDLL(None, use_errno=True)
def lock(command):
    with open("/tmp/locked", "wb") as file: fcntl.fcntl(file, command, bytes(32))
tried = {
    "memfd": lambda: os.memfd_create("hidden"),
    "shared": lambda: mmap.mmap(-1, 4096),
    "zeros": lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096),
    "lock": lambda: lock(fcntl.F_SETLK),
    "lockf": lambda: fcntl.lockf(open("/tmp/locked", "wb"), fcntl.LOCK_EX),
    "pair": lambda: socket.socketpair(),
    "socket": lambda: socket.socket(socket.AF_UNIX),
    "ring": lambda: libc.syscall(425, 8, ctypes.create_string_buffer(120)) + 1 or 1 / 0,
    "shmget": lambda: libc.shmget(0, 2**20, 0o1600) + 1 or 1 / 0,
    "msgget": lambda: libc.msgget(0, 0o1600) + 1 or 1 / 0,
    "semget": lambda: libc.semget(0, 32000, 0o1600) + 1 or 1 / 0,
}
made = []
for name, call in tried.items():
    try: call(); made.append(name)
    except (PermissionError, ZeroDivisionError): pass
private = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
tell(made)
"""
    assert run(body).results == "[]"


def test_files_without_end_are_refused_before_the_memory_is_full():
    """Empty ones take none of a file system's bytes."""
    body = """
made = 0
try:
    while made < 100_000:
        open(f"/tmp/{made}", "w").close()
        made += 1
except OSError: pass
tell(made)
"""
    assert 1000 < int(run(body, Limits(20)).results) <= confined_entry.FILES


@pytest.fixture(params=["root", "another user"])
def grader(request, monkeypatch):
    """Both ways to confine, walked as root: with users of its own, and as the first user of a namespace of users."""
    if request.param == "another user":
        monkeypatch.setattr(confine.os, "geteuid", lambda: 1000)


FILLED = "block = b'x' * 300 * 2**20\nimport time\ntime.sleep(20)"


def test_a_control_group_counts_what_no_process_is_told_to_have(grader, monkeypatch):
    with memory_group.memory_group(2**30) as group:
        if group is None:
            pytest.skip("no control group can be made here")
    monkeypatch.setattr(process_tree, "memory_bytes", lambda *_: 0)
    ended = run(FILLED, Limits(15, memory_mib=200, output_mib=1))
    assert ended.took_more == "" and "MemoryError" in ended.printed, "it has its own limit, too"
    forked = f"for _ in range(3):\n    if os.fork() == 0: break\n{FILLED.replace('300', '100')}"
    ended = run(forked, Limits(15, memory_mib=250))
    assert ended.took_more == "than 250 MiB of memory"
    assert not [*group.folder.parent.glob(f"labkit-answer-{os.getpid()}-*")], "none is left"


def test_a_process_whose_first_thread_has_ended_counts(grader, monkeypatch):
    monkeypatch.setattr(confine, "memory_group", lambda _: contextlib.nullcontext())
    body = """
import ctypes, threading, time
def hog():
    time.sleep(1)  # until the first thread has ended
    block = b"x" * 150 * 2**20
    time.sleep(20)
for _ in range(4):
    if os.fork() == 0: break
threading.Thread(target=hog).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit(2), of this thread alone
"""
    ended = run(body, Limits(15, memory_mib=512))
    assert (ended.took_more, ended.status) == ("than 512 MiB of memory", None)


BOMB = """
import time
for _ in range(60):
    if os.fork() == 0:
        os.setsid()  # the kernel shares the cores out by session
        break
while True: pass
"""
WORK = "import time\nwhile time.process_time() < 2: pass\ntell('done')"


@pytest.mark.slow
def test_an_answer_that_others_starve_is_run_once_more_alone(grader):
    with ThreadPoolExecutor() as pool:
        bombs = [pool.submit(run, BOMB, Limits(8)) for _ in range(2)]
        time.sleep(1)
        work = pool.submit(run, WORK, Limits(6))
    assert work.result().results == "done"
    assert [bomb.result().status for bomb in bombs] == [None, None]


def test_an_answer_that_sleeps_is_not_starved():
    assert not run("import time\ntime.sleep(20)", Limits(2)).starved


@calls_are_refused
def test_the_graders_keyring_and_the_host_of_a_virtual_machine_are_out_of_reach():
    """A keyring may hold tickets of Kerberos, and is no file; a socket of AF_VSOCK is in no namespace of networks."""
    add_key = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    body = f"""
import ctypes, socket
libc = ctypes.CDLL(None)
reached = [call for call in ({add_key + 1}, {add_key + 2}) if libc.syscall(call, 0, -3, 0) != -1]
if libc.syscall({add_key}, b"user", b"left", b"x", 1, -2) != -1: reached.append("left a key")
try: reached.append(socket.socket(40, socket.SOCK_STREAM))
except PermissionError: reached.append("refused")
tell(reached)
"""
    assert run(body).results == "['refused']"


def test_memory_has_a_limit():
    ended = run("try: bytearray(1 << 30)\nexcept MemoryError: tell('too much')", Limits(10, memory_mib=512))
    assert ended.results == "too much"


def test_output_has_a_limit():
    ended = run("tell('begun')\nwhile True: print('x' * 100000)", Limits(10, output_mib=2))
    assert ended.results == "begun"
    assert len(ended.printed) <= 2 * confine.MIB
    assert ended.status not in (0, None)


def test_the_workbook_is_not_there():
    there = [str(REPOSITORY / name) for name in ("labkit", "notebooks", ".git")]
    assert run(f"tell([path for path in {there} if os.path.exists(path)])").results == "[]"
    assert run("try:\n import labkit\n tell('in')\nexcept ImportError: tell('out')").results == "out"


def test_the_graders_files_are_not_there_and_python_cannot_be_changed(tmp_path):
    secret = tmp_path / "submissions" / "somebody.py"
    secret.parent.mkdir()
    secret.write_text("the answer of another")
    secret.chmod(0o644)
    body = f"""
tried = []
for path, mode in (({str(secret)!r}, 'r'), ('/etc/shadow', 'r'), ({str(Path.home() / ".bashrc")!r}, 'r'),
                   (os.path.join(sys.prefix, 'planted'), 'w'), (os.__file__, 'a')):
    try: open(path, mode); tried.append(path)
    except OSError: pass
tell(tried)
"""
    assert run(body).results == "[]"


def test_the_network_and_other_processes_are_out_of_reach():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        reach = f"import socket\ntry: socket.create_connection({server.getsockname()}, 2); tell('in')\n"
        assert run(f"{reach}except OSError: tell('out')").results == "out"
    assert run(f"try: os.kill({os.getpid()}, 0); tell('seen')\nexcept OSError: tell('no')").results == "no"


def test_rights_cannot_be_had_back():
    body = """
tried = []
import ctypes, subprocess
for name, call in {
    'root': lambda: os.setuid(0) if os.getuid() else None,
    'mount': lambda: subprocess.run(['mount', '-t', 'tmpfs', 'x', '/tmp'], check=True, stderr=-3),
    'unhide': lambda: subprocess.run(['umount', '/'], check=True, stderr=-3),
    'chroot': lambda: os.chroot('/tmp'),
}.items():
    try: call(); tried.append(name)
    except (OSError, subprocess.CalledProcessError): pass
tell(tried)
"""
    own_user = os.geteuid() == 0  # elsewhere it is root in a namespace of users, without rights outside
    assert run(body).results == ("[]" if own_user else "['root']")


def test_a_user_without_root_is_confined_by_a_namespace_of_users(monkeypatch):
    """The way of another user than root, walked as root: the first user of a namespace of its own."""
    monkeypatch.setattr(confine.os, "geteuid", lambda: 1000)
    ended = run(f"tell([os.path.exists({str(REPOSITORY)!r} + '/labkit'), os.access(os.__file__, os.W_OK)])")
    assert ended.results == "[False, False]", ended


@pytest.mark.parametrize("euid", [0, 1000])
@pytest.mark.parametrize("deaf", ["", "import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n"])
def test_an_answer_does_not_outlive_a_grader_that_is_killed(tmp_path, euid, deaf):
    """One may be deaf to the death of its parent, with PR_SET_PDEATHSIG."""
    mark = f"labkit-outlives-{os.getpid()}"
    sleeps = f"[sys.executable, '-c', {deaf + 'import time; time.sleep(60)'!r}, '{mark}']"
    body = f"import subprocess, sys, time\n{deaf}subprocess.Popen({sleeps})\n"
    grader = f"""
from labkit.course.grading import confine
confine.os.geteuid = lambda: {euid}
confine._run({{"script.py": {body + "time.sleep(60)"!r}}}, "script.py", confine.Limits(60))
"""
    killed = subprocess.Popen([sys.executable, "-c", grader], env=os.environ | {"TMPDIR": str(tmp_path)})
    try:
        deadline = time.monotonic() + 30
        while not still_running(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert still_running(mark), "it has started"
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    deadline = time.monotonic() + 10
    while still_running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not still_running(mark)


def still_running(mark: str) -> list[int]:
    return [process.pid for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or [])]


@pytest.mark.parametrize("kept", ["PR_CAPBSET_DROP", "PR_SET_NO_NEW_PRIVS", "PR_SET_SECCOMP"])
def test_no_answer_runs_where_a_right_is_kept(monkeypatch, tmp_path, kept):
    """A kernel that refuses to take a right away is told by the trial answer."""
    entry = Path(confined_entry.__file__).read_text(encoding="utf-8")
    broken = tmp_path / "confined_entry.py"
    broken.write_text(entry.replace(f"prctl({kept},", "prctl(0,"))
    monkeypatch.setattr(confined_entry, "__file__", str(broken))
    assert "an answer could" in confine.confinement_fault()


def test_nothing_is_left_in_the_folder_of_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run("tell('x'); open('/tmp/left', 'w').write('y')")
    assert [*tmp_path.iterdir()] == []
