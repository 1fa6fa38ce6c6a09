"""What a run stands on is taken away while it goes on: its folder, the loopback interface."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
from failing_launches import HERE, failed, launch, nothing_left, works
from failing_plan import Failing

from labkit.engine.errors import GroundLost, RunError, WorkerHung, WorkerRaised
from labkit.engine.session import AgentSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class StoppedClock(datetime):
    """All runs are made within one second, so that their folders have the same name where they may."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5)


def lost(tmp_path, take_away, *faults: str, kind=GroundLost) -> RunError:
    """Return the error of a run of which something is taken away after its first row; `take_away` gets its folder."""

    def watch():
        while not (files := [*(tmp_path / "runs").glob("*/rows-rank1.jsonl")]) or not files[0].stat().st_size:
            time.sleep(0.02)
        take_away(files[0].parent)

    thread = threading.Thread(target=watch)
    thread.start()
    with pytest.raises(kind) as caught:
        launch(Failing(faults=faults), patience_s=60)
    thread.join()
    return caught.value


@pytest.mark.quick
def test_a_run_folder_that_is_removed(tmp_path):
    error = lost(tmp_path, shutil.rmtree, "slow")
    assert error.sentence.startswith(f"the run's folder {error.run.folder} was removed, or moved elsewhere")
    assert "lost with the folder" in str(error)
    nothing_left(error.run)
    works()


@pytest.mark.parametrize("end", ["a finished run", "a stopped run"])
def test_a_run_with_the_name_of_one_that_was_removed(monkeypatch, end):
    """It is not given that one's end, and not stopped because that one was."""
    monkeypatch.setattr("labkit.engine.run.datetime", StoppedClock)
    if end == "a finished run":
        first = works()
    else:
        with pytest.raises(WorkerHung) as caught:
            launch(Failing(faults=("slow",)), limit_s=0)
        first = caught.value.run
    shutil.rmtree(first.folder)
    second = works()
    assert (second.folder, len(second.rows)) == (first.folder, 2)


def meeting_place() -> Path:
    """The private folder of this process's agent."""
    return Path(AgentSession._current._folder)


def empty_the_meeting_place(_):
    for file in meeting_place().rglob("*"):
        if not file.is_dir():
            file.unlink()


@pytest.mark.parametrize("fault", ["wait", "sleep"])
def test_a_folder_in_which_the_ranks_meet_that_is_removed(tmp_path, fault):
    """A cleaner of temporary files does so; torch's store waits for its file half an hour."""
    begun = time.monotonic()
    error = lost(tmp_path, lambda _: shutil.rmtree(meeting_place()), fault, "none", kind=(GroundLost, WorkerRaised))
    assert time.monotonic() - begun < 20, "its patience is 60 s"
    assert "in which the ranks meet" in error.sentence or "at which the ranks meet" in error.sentence
    nothing_left(error.run)
    works()


def test_a_file_at_which_the_ranks_meet_that_is_removed(tmp_path):
    """The ranks would make another file of that name, and not find what each writes there."""
    error = lost(tmp_path, empty_the_meeting_place, "wait", "none", kind=WorkerRaised)
    assert "raised RuntimeError: the file at which the ranks meet, " in error.sentence
    assert len(error.run.rows) >= 2
    nothing_left(error.run)
    works()


def test_a_rank_that_changes_its_root():
    if os.geteuid():
        pytest.skip("only root may do it")
    error = failed(WorkerRaised, "chroot", "none")
    assert error.sentence.startswith("rank 1 raised RuntimeError: the file at which the ranks meet, ")


WITHOUT_LOOPBACK = """
import array, fcntl, json, socket, struct, sys, threading, time
from failing_plan import Failing
from labkit import launch
from labkit.engine import processes

def set_loopback(up):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", up))  # SIOCSIFFLAGS: IFF_UP

set_loopback(int(sys.argv[1]))
if sys.argv[1] == "1":
    launch(Failing())
    threading.Timer(1.5, set_loopback, (0,)).start()
try:
    launch(Failing(faults=("slow", "none")), patience_s=30)
except Exception as error:
    left = len(processes.members(error.run))
    print(json.dumps([type(error).__name__, error.sentence, left]))
"""


@pytest.mark.parametrize("at_first", [0, 1])
def test_a_loopback_interface_that_is_down(at_first):
    """In a network namespace of its own, where it is down from the start, or goes down while ranks measure."""
    command = ["unshare", "--net", sys.executable, "-c", WITHOUT_LOOPBACK, str(at_first)]
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    ended = subprocess.run(command, cwd=HERE, env=os.environ, capture_output=True, text=True, timeout=100)
    kind, sentence, left = json.loads(ended.stdout)
    assert (kind, left) == ("GroundLost", 0), "what its patience ends, is WorkerHung"
    assert sentence.startswith("the loopback interface lo is down")


CLOSED_FOLDER = """
import json, os, threading, time
from pathlib import Path
from failing_plan import Failing
from labkit import launch
from labkit.engine import processes

def close_folder():
    while not (files := [*Path(os.environ["LABKIT_RUNS"]).glob("*/rows-rank1.jsonl")]) or not files[0].stat().st_size:
        time.sleep(0.02)
    (files[0].parent / os.environ["CLOSED"]).chmod(0)

threading.Thread(target=close_folder, daemon=True).start()
try:
    launch(Failing(faults=("slow",)), patience_s=60)
except Exception as error:
    told, closed = str(error), error.run.folder / os.environ["CLOSED"]
    closed.chmod(0o700)
    left = len(processes.members(error.run))
    print(json.dumps([type(error).__name__, error.sentence, str(closed), told, len(error.run.rows), left]))
"""


@pytest.mark.parametrize("closed", [".", "logs"])
def test_a_run_folder_that_its_user_closes(closed):
    """Root gives up the capabilities by which it reads everything: then it is a user as any other."""
    ordinary = "-dac_override,-dac_read_search"
    without = ["setpriv", f"--bounding-set={ordinary}", f"--inh-caps={ordinary}"] if os.geteuid() == 0 else []
    command, own = [*without, sys.executable, "-c", CLOSED_FOLDER], os.environ | {"CLOSED": closed}
    ended = subprocess.run(command, cwd=HERE, env=own, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0 and ended.stdout, ended.stderr
    kind, sentence, folder, told, rows, left = json.loads(ended.stdout)
    assert (kind, rows, left) == ("GroundLost", 2, 0), sentence
    assert sentence.startswith(f"{folder} cannot be read any more (Permission denied): while the run went on")
    assert f"Run `chmod u+rwx {folder}`" in sentence
    assert ("the rows that were measured before that cannot be read now" in told) == (closed == ".")


def replace(file: Path, make) -> None:
    file.unlink()
    make(file)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_rows_that_are_replaced(tmp_path, make):
    error = lost(tmp_path, lambda folder: replace(folder / "rows-rank1.jsonl", make), "slow")
    assert "rows-rank1.jsonl was replaced by something that is not a regular file" in error.sentence
    assert error.run.rows["rank"].unique().tolist() == [0]
    nothing_left(error.run)


def test_events_that_are_replaced(tmp_path):
    error = lost(tmp_path, lambda folder: replace(folder / "logs" / "rank1.events.jsonl", os.mkdir), "slow")
    assert "rank1.events.jsonl cannot be read: it is not a regular file, and" in error.sentence
    assert len(error.run.rows) == 2
    nothing_left(error.run)
