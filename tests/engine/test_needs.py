"""What the machine refuses of what every launch needs is told in one sentence: what, why, and what to do."""

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.engine import needs

HERE = Path(__file__).parent
LAUNCH = """
from faults_plan import Faults
from labkit.engine.errors import RunError
from labkit.launching import launch
try:
    print("right", len(launch(Faults(faults=("none",))).rows))
except RunError as error:
    print(type(error).__name__, error.sentence)
"""
PIDFD_OPEN, FLOCK = 434, 73  # numbers of system calls on x86-64


def first_launch(*before: str, **settings: str) -> str:
    """Return what a fresh kernel tells of its first launch."""
    command = [*before, sys.executable, "-c", LAUNCH]
    done = subprocess.run(command, cwd=HERE, env=os.environ | settings, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusing(number: int, error: int) -> tuple[str, ...]:
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of system calls are those of x86-64")
    return (sys.executable, str(HERE / "refuse.py"), str(error), str(number))


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_pidfd_open_refused(error):
    said = first_launch(*refusing(PIDFD_OPEN, error))
    assert said.startswith("LauncherLost the workers cannot be started or followed: ")
    assert f"the system call pidfd_open is refused ({os.strerror(error)})" in said
    assert f"Linux 5.3 or newer (here: {platform.release()})" in said and "seccomp" in said


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK])
def test_no_locks_in_the_temporary_folder(error, tmp_path):
    said = first_launch(*refusing(FLOCK, error), TMPDIR=str(tmp_path))
    assert f"no file in {tmp_path} can be locked ({os.strerror(error)})" in said
    assert "set TMPDIR to" in said
    assert not [*tmp_path.glob("labkit-*")], "nothing is left there"


def test_no_shared_memory():
    hide = 'mount --make-rprivate / && mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", hide, "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    said = first_launch(*before)
    assert "no file can be made in /dev/shm (No such file or directory)" in said
    assert "mount -t tmpfs -o mode=1777 tmpfs /dev/shm" in said


@pytest.fixture
def asked_anew():
    needs.require_needs.cache_clear()
    yield
    needs.require_needs.cache_clear()


@pytest.mark.parametrize(
    ("place", "name", "error", "said"),
    [
        (
            "os",
            "pidfd_open",
            PermissionError(errno.EPERM, "Operation not permitted"),
            "pidfd_open is refused (Operation",
        ),
        (
            "fcntl",
            "flock",
            OSError(errno.EOPNOTSUPP, "Operation not supported"),
            "can be locked (Operation not supported)",
        ),
        ("fcntl", "flock", OSError(errno.EINVAL, "Invalid argument"), "can be locked (Invalid argument)"),
        (
            "socket",
            "socket",
            OSError(errno.EAFNOSUPPORT, "Address family not supported"),
            "no Unix socket can be made in",
        ),
        (
            "tempfile",
            "TemporaryFile",
            PermissionError(errno.EACCES, "Permission denied"),
            "made in /dev/shm (Permission",
        ),
        ("tempfile", "TemporaryFile", OSError(errno.ENOTDIR, "Not a directory"), "made in /dev/shm (Not a directory)"),
    ],
)
def test_a_refusal_names_the_need(place, name, error, said, monkeypatch, asked_anew):
    def refused(*arguments, **more):
        raise error

    monkeypatch.setattr(getattr(needs, place), name, refused)
    with pytest.raises(OSError) as caught:
        needs.require_needs()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_python_that_lacks_the_call(monkeypatch, asked_anew):
    """One that was built where the kernel's headers are older than 5.3."""
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(OSError, match=r"pidfd_open is refused \(this Python was built without it"):
        needs.require_needs()


def test_what_is_full_or_has_a_limit_is_told_elsewhere(monkeypatch, asked_anew):
    def full(*arguments, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(needs.tempfile, "TemporaryFile", full)
    needs.require_needs()


def test_a_long_temporary_folder_takes_a_socket(tmp_path, monkeypatch, asked_anew):
    long = tmp_path / ("long" * 40)
    long.mkdir()
    monkeypatch.setattr(needs.tempfile, "tempdir", str(long))
    needs.require_needs()
    assert not [*long.iterdir()]
