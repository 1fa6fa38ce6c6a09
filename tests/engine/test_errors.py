"""Errors are bounded, cross processes, and say in their first sentence why."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from faults_plan import Faults
from launches import HERE, failed, soon

from labkit import node
from labkit.engine.errors import GroundLost, Interrupted, NowhereToWrite, WorkerHung, WorkerRaised
from labkit.engine.run import Run
from labkit.launching import launch

pytestmark = pytest.mark.timeout(120)
CGROUPS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")  # of version 1, and of version 2


def test_an_error_crosses_processes():
    error = failed(WorkerRaised, "raise")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (WorkerRaised, str(error))
    assert (again.rank, again.point, again.gpu, again.sentence) == (1, 0, None, error.sentence)
    assert len(again.run.rows) == len(error.run.rows) == 2
    interrupted = pickle.loads(pickle.dumps(Interrupted(error.run)))
    assert str(interrupted).startswith("interrupted; 2 rows were measured before that")


@pytest.mark.parametrize("kind", [WorkerHung, GroundLost])
def test_a_sentence_is_bounded(kind):
    error = kind("a" * 300_000 + "\nb", run=Run.create(Faults(), node.here()))
    assert len(str(error)) < 10_000
    assert "\n" not in error.sentence


def test_a_sentence_holds_nothing_that_changes_how_the_rest_is_shown():
    text = "\x1b[31mred\x00\r\n\u202egnorw \ud800\tÄ 25\u202f000 → ×"
    error = GroundLost(text, run=Run.create(Faults(), node.here()))
    assert error.sentence == "\\x1b[31mred\\x00\\r \\u202egnorw \\ud800 Ä 25\u202f000 → ×"


@pytest.mark.slow
def test_an_error_at_a_point_of_a_long_knob():
    error = failed(WorkerHung, "x" * 300_000, patience_s=2)
    assert len(error.sentence) < 1_500
    assert len(str(error)) < 25_000


def test_runs_that_go_to_a_name_which_is_not_utf_8(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", os.fsdecode(os.fsencode(tmp_path) + b"/runs-\xe9"))
    with pytest.raises(NowhereToWrite, match="is not UTF-8: choose another name") as caught:
        launch(Faults())
    str(caught.value).encode()
    assert not [*tmp_path.iterdir()]


LIMITED = """
import resource, signal, sys, time
from faults_plan import Faults
from labkit.engine.errors import RunError
from labkit.launching import launch
from labkit import node
from labkit.engine import watch
watch.END_SECONDS = 60.0  # a run whose workers' ends are not seen takes so long, and no other does
node.here()
if files := int(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
if sys.argv[2:] == ["SIGCHLD"]:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
try:
    run = launch(Faults(faults=tuple(sys.argv[3:]) or ("none",)))
    print(run.status["state"], run.seconds - run.status["startup_seconds"])
except RunError as error:
    print(error)
"""


def limited(*arguments: str, before: tuple[str, ...] = ()) -> str:
    """Return the first line that a kernel tells which launches under a limit."""
    command = [*before, sys.executable, "-c", LIMITED, *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}  # as on two cores
    ended = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=100)
    return ended.stdout.split("\n")[0]


@pytest.mark.parametrize("files", ["10", "16"])
@pytest.mark.slow
def test_few_open_files(files):
    said = limited(files)
    assert "Too many open files" in said
    assert f"`ulimit -n` allows {files} in each process" in said


@pytest.mark.parametrize("processes", ["1", "6", "10"])
@pytest.mark.slow
def test_few_processes(processes):
    """The limit holds for whoever is not root: here, a process with another user's number."""
    before = ("setpriv", "--ruid", "65534", "--bounding-set", "-sys_resource,-sys_admin")
    before = (*before, "prlimit", f"--nproc={processes}")
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no process can be limited here")
    said = limited("0", before=before)
    assert f"`ulimit -u` allows {processes} processes and threads" in said


@pytest.fixture
def few_tasks():
    """Return a control group that allows 12 processes and threads, as a job's or a container's does."""
    top = next((top for top in map(Path, CGROUPS) if Path(top, "cgroup.procs").exists()), None)
    group = top and top / f"labkit-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("12")
    except (OSError, AttributeError):
        pytest.skip("no control group can be made here")
    yield group
    soon(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@pytest.mark.slow
def test_few_processes_in_a_control_group(few_tasks):
    said = limited("0", before=("sh", "-c", f'echo $$ > {few_tasks}/cgroup.procs && exec "$@"', "sh"))
    assert "a container or job may allow fewer: pids.max of its control group" in said


def shared_memory(options: str) -> tuple[str, ...]:
    """Return the command before another one that is to see a /dev/shm with these options."""
    mount = f"mount --make-rprivate / && mount -t tmpfs -o {options} none /dev/shm"
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    return ("unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh")


@pytest.mark.slow
def test_no_shared_memory():
    assert "Read-only file system (/dev/shm cannot be written" in limited("0", before=shared_memory("ro"))


@pytest.mark.parametrize(("room", "who"), [("4k", "the process that starts"), ("1m", "rank 1 raised OSError")])
@pytest.mark.slow
def test_full_shared_memory_is_named_and_no_other_place(room, who):
    """From the start, and once a rank has filled it."""
    said = limited("0", "", "full shared memory", before=shared_memory(f"size={room}"))
    assert said.startswith(who)
    assert "No space left on device (/dev/shm, where processes share memory and locks, is full)" in said
    assert "cannot be written" not in said


@pytest.mark.slow
def test_a_kernel_that_blocks_sigchld():
    state, seconds = limited("0", "SIGCHLD").split()
    assert state == "finished"
    assert float(seconds) < 40, "END_SECONDS are 60 here"
