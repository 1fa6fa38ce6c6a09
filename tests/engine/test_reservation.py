"""Two launches never use one GPU at the same time; the GPUs are made up (a file names them), the processes are real."""

from __future__ import annotations

import getpass
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from faults_plan import Faults
from launches import HERE, failed, soon

from labkit import node
from labkit.engine import launch_settings, locks, reservation
from labkit.engine.errors import NotEnoughGpus, PlanError, WorkerHung
from labkit.engine.plan import Plan
from labkit.engine.reservation import Reservation
from labkit.launching import launch
from labkit.report.node_lock import hold_node

ME = getpass.getuser()


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Return a function that makes up GPUs, each with what another program holds of it, and the folder of locks."""
    (folder := tmp_path / "locks").mkdir()
    monkeypatch.setenv("LABKIT_LOCKS", str(folder))
    monkeypatch.setenv("LABKIT_STAND_IN_GPUS", str(tmp_path / "gpus.json"))

    def make_up(**held: str) -> Path:
        (tmp_path / "gpus.json").write_text(json.dumps(held))
        return folder

    return make_up


def reserve(count: int, limit_s: float = 0.0, tell=lambda text: None) -> Reservation:
    """Return the reservation of a launch on so many GPUs. Raises NotEnoughGpus after `limit_s`."""
    made = Reservation(Faults(gpus=count), node.here())
    try:
        made.take(limit_s, tell)
    except BaseException:
        made.release()
        raise
    return made


def names(made: Reservation) -> list[str | None]:
    return [gpu.uuid for gpu in made.gpus]


def test_free_gpus_are_picked_first_and_the_workers_see_only_these(gpus):
    gpus(a="", b="", c="", d="")
    first = reserve(1)
    third = reserve(1)
    second = reserve(1)
    assert [names(one) for one in (first, third, second)] == [["a"], ["b"], ["c"]]
    third.release()
    run = launch(Faults(gpus=2, faults=("visible",)))
    assert set(run.rows["visible"].dropna()) == {"b,d"}
    assert [gpu.uuid for gpu in run.node.gpus[:2]] == ["b", "d"]
    for one in (first, second):
        one.release()


def test_processes_that_stand_in_for_gpus_see_none(gpus, monkeypatch):
    monkeypatch.delenv("LABKIT_STAND_IN_GPUS")
    run = launch(Faults(gpus=2, device="cpu", faults=("visible",)))
    assert set(run.rows["visible"].dropna()) == {""}


def test_launches_of_one_kernel_follow_each_other(gpus):
    """Four threads launch on two GPUs; at no time is a GPU used twice."""
    gpus(a="", b="")
    with ThreadPoolExecutor(4) as pool:
        runs = [*pool.map(lambda _: launch(Faults(gpus=1, faults=("visible",), rank=0)), range(4))]
    used = [(run.rows["visible"].dropna().iloc[0], run.rows["at"].min(), run.rows["at"].max()) for run in runs]
    assert {gpu for gpu, *_ in used} == {"a", "b"}
    for gpu in "ab":
        times = sorted((begun, ended) for name, begun, ended in used if name == gpu)
        assert all(ended <= begun for (_, ended), (begun, _) in itertools.pairwise(times))


def test_a_launch_that_finds_too_few_is_told_the_owner(gpus):
    gpus(a="", b="")
    holder, told = reserve(1), []
    with pytest.raises(NotEnoughGpus, match="2 GPU"):
        reserve(2, 0.5, told.append)
    assert f"GPU 0: {ME} (process {os.getpid()}: python" in told[-1] and "GPU 1" not in told[-1]
    assert names(reserve(1)) == ["b"], "what it took for a moment, it gave back"
    holder.release()


def test_who_came_first_is_served_first(gpus):
    """One wants both GPUs, a later one a single one: that one waits, though a GPU is free."""
    gpus(a="", b="")
    holder, served, first, second = reserve(1), [], [], []

    def wait(count: int, tell) -> None:
        made = reserve(count, 30, tell)
        served.append(count)
        time.sleep(0.3)
        made.release()

    both = threading.Thread(target=wait, args=(2, first.append))
    both.start()
    soon(lambda: first)
    single = threading.Thread(target=wait, args=(1, second.append))
    single.start()
    soon(lambda: len(second) > 3)
    assert served == []
    assert f"(GPU 0: {ME} (process {os.getpid()}" in second[-1] and f"behind {ME} (process " in second[-1]
    with pytest.raises(NotEnoughGpus, match=r"within 0 s: .*behind"):
        reserve(1, 0.2)
    holder.release()
    both.join(10)
    single.join(10)
    assert served == [2, 1]


def test_launches_that_see_other_gpus_do_not_wait_for_each_other(gpus):
    """As jobs of one node, each with GPUs of its own."""
    gpus(a="")
    holder, told = reserve(1), []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reserve, 1, 30, told.append)
        soon(lambda: told)
        gpus(b="")
        reserve(1).release()
        holder.release()
        waiting.result().release()


def test_a_gpu_that_another_program_holds_is_avoided_or_told(gpus):
    gpus(a="process 7 of bob holds 300 MiB", b="", c="")
    made = reserve(2)
    assert names(made) == ["b", "c"]
    made.release()
    assert launch(Faults(gpus=2)).source.count("contaminated") == 0
    run = launch(Faults(gpus=3))
    assert "contaminated: another program held GPU 0, too" in run.source
    assert "GPU 0: process 7 of bob holds 300 MiB" in repr(run)
    assert "contaminated" in run.medians(["fault"], "seconds").attrs["source"], "as every chart's footer has it"


def test_a_program_that_comes_while_the_launch_goes_on_is_told(gpus):
    folder = gpus(a="", b="")
    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(launch, Faults(gpus=2, faults=("visible",)))
        soon(lambda: locks.holding_pids(locks.gpu_file(folder, "b")))
        gpus(a="", b="process 8 of eve holds 9 MiB")
        assert "contaminated: another program held GPU 1, too" in going_on.result().source


def test_a_course_limits_the_gpus_of_each_user(gpus, monkeypatch):
    gpus(a="", b="", c="")
    monkeypatch.setenv("LABKIT_MAX_GPUS", "2")
    with pytest.raises(NotEnoughGpus, match="LABKIT_MAX_GPUS=2"):
        reserve(3, 60)
    first = reserve(1)
    second = reserve(1)
    told = []
    with pytest.raises(NotEnoughGpus, match="your other launches hold 2"):
        reserve(1, 0.3, told.append)
    first.release()
    third = reserve(1)
    for one in (second, third):
        one.release()
    monkeypatch.setenv("LABKIT_MAX_GPUS", "many")
    with pytest.raises(PlanError, match="whole number"):
        reserve(1)


def test_a_plan_takes_no_more_gpus_than_the_course_allows(monkeypatch):
    four = replace(node.here(), gpus=tuple(node.Gpu(index=index) for index in range(4)))
    monkeypatch.setattr(node, "here", lambda: four)

    class Any(Plan):
        lab, worker = "any", "any"

    assert (Any().gpus, Any.few(3)) == (4, 3)
    monkeypatch.setenv("LABKIT_MAX_GPUS", "2")
    assert (Any().gpus, Any.few(3)) == (2, 2)


def test_a_course_limits_the_minutes_of_a_run(monkeypatch):
    minutes = {"LABKIT_MAX_MINUTES": 0.02}
    monkeypatch.setattr(launch_settings, "limit_from_environment", minutes.get)
    assert "outlasted its time limit" in failed(WorkerHung, "sleep").sentence


def test_shared_cores_are_told_as_a_warning_that_ends_no_launch_where_warnings_are_errors(
    tmp_path, monkeypatch, recwarn, capsys
):
    """As under `python -W error`."""
    monkeypatch.setenv("LABKIT_LOCKS", str(tmp_path))
    here = replace(node.here(), cores=3)
    first, second, third = (Reservation(Faults(gpus=2), here) for _ in range(3))
    first.take(0, print)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=f"2 worker.* other launches .{ME}. use this node's 3 core"):
        second.take(0, print)
    with warnings.catch_warnings(action="error"):
        third.take(0, print)
    assert "UserWarning: 4 worker(s) of other launches" in capsys.readouterr().err
    for one in (first, second, third):
        one.release()
    second.take(0, print)
    assert not recwarn.list, "what ended counts no more"
    second.release()


@contextmanager
def another_process(code: str, *arguments: str):
    """Run some code until this context ends; give the process, and the first line that it printed."""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


HOLDS_AND_FORKS = """
import os, time
from faults_plan import Faults
from labkit import node
from labkit.engine.reservation import Reservation
Reservation(Faults(gpus=1), node.here()).take(0, print)
if child := os.fork():
    print(child, flush=True)
time.sleep(60)
"""


def test_a_process_that_the_kernel_has_forked_holds_nothing(gpus):
    gpus(a="")
    with another_process(HOLDS_AND_FORKS) as (kernel, child):
        with pytest.raises(NotEnoughGpus):
            reserve(1, 0.2)
        kernel.kill()
        kernel.wait()
        try:
            reserve(1, 10).release()
        finally:
            os.kill(int(child), 9)


def test_a_lock_whose_holder_cannot_be_seen_is_kept(gpus, tmp_path, monkeypatch):
    """The lock alone decides: from within a container, the system shows no process outside it."""
    folder, told = gpus(a=""), []
    held = locks.lock(locks.gpu_file(folder, "a"))
    assert held is not None
    (tmp_path / "none").touch()
    monkeypatch.setattr(locks, "SYSTEM_LOCKS", tmp_path / "none")
    with pytest.raises(NotEnoughGpus):
        reserve(1, 0.3, told.append)
    assert "GPU 0: another process" in told[-1]
    held.release()
    reserve(1).release()


def test_holders_are_found_by_device_and_inode(tmp_path, monkeypatch):
    """On overlayfs by the inode alone: stat(2) gives another device than the system's list of locks."""
    file, system = tmp_path / "a.lock", tmp_path / "system"
    file.touch()
    inode, device = file.stat().st_ino, file.stat().st_dev
    own = f"{os.major(device):02x}:{os.minor(device):02x}"
    others = f"""1: POSIX  ADVISORY  WRITE 11 {own}:{inode} 0 EOF
2: FLOCK  ADVISORY  WRITE 12 {own}:{inode}1 0 EOF
3: FLOCK  ADVISORY  WRITE 13 7f:01:{inode} 0 EOF
3: -> FLOCK  ADVISORY  WRITE 14 7f:01:{inode} 0 EOF
"""
    monkeypatch.setattr(locks, "SYSTEM_LOCKS", system)
    system.write_text(others)
    assert locks.holding_pids(file) == [13]
    system.write_text(f"{others}4: FLOCK  ADVISORY  READ 15 {own}:{inode} 0 EOF\n")
    assert locks.holding_pids(file) == [15]


def test_files_alone_hold_nothing(gpus):
    """Neither what a killed kernel left, nor what somebody wrote by hand."""
    folder = gpus(a="")
    locks.gpu_file(folder, "a").write_text("held by root since 1970")
    reserve(1).release()
    assert locks.gpu_file(folder, "a").read_text() == "held by root since 1970", "nothing is written to a lock"


@pytest.mark.parametrize("make", [lambda file, mine: file.symlink_to(mine), lambda file, _: os.mkfifo(file)])
def test_no_link_is_followed_and_no_fifo_waited_for(gpus, tmp_path, make):
    folder = gpus(a="", b="")
    (mine := tmp_path / "mine").write_text("my own")
    make(locks.gpu_file(folder, "a"), mine)
    mode = mine.stat().st_mode
    with pytest.warns(UserWarning, match="another launch may use GPU 0"):
        made = reserve(2)
    assert names(made) == ["a", "b"]
    assert (mine.read_text(), mine.stat().st_mode) == ("my own", mode)
    made.release()


def test_a_folder_in_which_others_can_remove_locks_is_not_used(gpus):
    folder = gpus(a="")
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="other launches may use the same GPUs"):
        assert names(reserve(1)) == ["a"]
    assert not [*folder.iterdir()]
    folder.chmod(0o1777)
    reserve(1).release()


def test_a_folder_that_cannot_be_written_is_told(gpus, monkeypatch):
    """/proc: not even root may make a file there."""
    gpus(a="")
    monkeypatch.setenv("LABKIT_LOCKS", "/proc")
    told = "other launches may use the same GPUs at the same time: /proc cannot be used for locks: No such file"
    with pytest.warns(UserWarning, match=told):
        assert names(reserve(1)) == ["a"]
    with pytest.warns(UserWarning, match="another unattended run may use this node"), hold_node(False, print):
        pass


def test_a_turnstile_that_is_none_keeps_nobody_out(gpus, tmp_path):
    """The GPUs' locks count all the same."""
    folder = gpus(a="", b="")
    locks.turnstile_file(folder, "a").symlink_to(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match="launches may take GPUs out of turn: .*turnstile cannot be locked"):
        first, second = reserve(1), reserve(1)
    assert [names(one) for one in (first, second)] == [["a"], ["b"]]
    for one in (first, second):
        one.release()


@pytest.mark.parametrize(("name", "why"), [("file", "it is no folder"), ("missing", "No such file or directory")])
@pytest.mark.parametrize("with_gpus", [True, False])
def test_a_folder_of_locks_that_is_none_is_refused(gpus, tmp_path, monkeypatch, name, why, with_gpus):
    """It would lock nothing, for launches and for unattended runs alike."""
    gpus(**({"a": ""} if with_gpus else {}))
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABKIT_LOCKS", str(tmp_path / name))
    advice = "set LABKIT_LOCKS to a folder that root has made with mode 1777, or leave it out"
    with pytest.raises(PlanError) as caught:
        launch(Faults(gpus=1))
    assert str(caught.value) == f"LABKIT_LOCKS={tmp_path / name} can hold no locks ({why}): {advice}"
    assert not (tmp_path / "runs").exists()
    with pytest.raises(PlanError, match="can hold no locks"), hold_node(wait=False, tell=print):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for two users")
def test_two_users_share_the_locks(gpus):
    """What the one has made, the other can lock, whatever the umask; the owner is whom the system names."""
    folder = gpus(a="")
    folder.chmod(0o1777)
    for parent in (folder, *folder.parents[:-2]):  # all below /tmp; pytest nests them deeper under xdist
        parent.chmod(parent.stat().st_mode | 0o005)
    before = os.umask(0o077)
    try:
        reserve(1).release()
    finally:
        os.umask(before)
    dropped = "node.here(); os.setgroups([]); os.setgid(65534); os.setuid(65534)\nReservation("
    code = HOLDS_AND_FORKS.replace("Reservation(", dropped)
    told = []
    with another_process(code) as (_, child):
        with pytest.raises(NotEnoughGpus):
            reserve(1, 0.3, told.append)
        assert "GPU 0: nobody (process " in told[-1] and "\n" not in told[-1], "as the command has it"
        os.kill(int(child), 9)
    reserve(1, 10).release()


def test_a_launch_without_contention_costs_less_than_ten_milliseconds(gpus, monkeypatch):
    """Of a core's time, which other work on the machine does not lengthen; and it never sleeps."""
    gpus(a="", b="", c="", d="")
    slept, seconds = [], []
    monkeypatch.setattr(reservation.time, "sleep", slept.append)
    for _ in range(20):
        begun = time.process_time()
        reserve(2).release()
        seconds.append(time.process_time() - begun)
    assert min(seconds) < 0.01
    assert slept == []
