"""The versions of Python whose private names the forkserver needs, and the slower public way under all others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from launches import HERE

from labkit.engine import forkserver
from labkit.repository import CODE, REPOSITORY

SPAWNING = """
import json, sys, time
import psutil
from faults_plan import Faults
from labkit.engine.errors import RunError
from labkit.launching import launch
from labkit.engine.processes import members

def tell(*faults):
    begun = time.monotonic()
    try:
        run, error = launch(Faults(faults=faults)), None
    except RunError as caught:
        run, error = caught.run, caught
    below = [process.name() for process in psutil.Process().children(recursive=True)]
    print(json.dumps({
        "state": run.status["state"],
        "error": type(error).__name__,
        "points": sorted({*run.rows["point"]}),
        "started": run.status["processes_started"],
        "left": len(members(run)),
        "below": len(below),
        "forkservers": below.count("forkserver"),
    }), flush=True)

for faults in json.loads(sys.argv[1]):
    tell(*faults)
"""


def told(code_from, *launches: list[str]) -> list[dict]:
    """Return what a kernel of its own tells of launches with these faults; it imports labkit from this folder."""
    environment = os.environ | {"PYTHONPATH": f"{code_from}{os.pathsep}{HERE}"}
    command = [sys.executable, "-c", SPAWNING, json.dumps(launches)]
    ended = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture
def unsupported(tmp_path):
    """Return a folder with a copy of labkit that knows no version of Python."""
    copy = tmp_path / "copy"
    shutil.copytree(REPOSITORY / "labkit", copy / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "labkit" / "engine" / "forkserver.py"
    text, changes = re.subn(r"^SUPPORTED = .*$", "SUPPORTED = ()", file.read_text(), flags=re.M)
    assert changes == 1
    file.write_text(text)
    return copy


def test_this_python_is_supported():
    """CI runs this under each version of Python that SUPPORTED lists and the workbook has an environment for."""
    assert sys.version_info[:2] in forkserver.SUPPORTED


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_workers_are_spawned_where_python_is_not_supported(unsupported):
    """A run, one that restarts after a killed worker, one that raises, and one whose worker leaves with status 0."""
    well, killed, raised, left, after = told(
        unsupported, ["none"], ["kill", "none"], ["raise"], ["exit 0"], ["grandchild"]
    )
    assert well == {
        "state": "finished",
        "error": "NoneType",
        "points": [0],
        "started": 2,
        "left": 0,
        "below": 2,
        "forkservers": 0,
    }
    assert (killed["error"], killed["points"], killed["started"]) == ("WorkerDied", [0, 1], 4)
    assert "was killed by SIGKILL" in killed["state"]
    assert (raised["error"], left["error"], after["state"]) == ("WorkerRaised", "WorkerDied", "finished")
    assert [one["left"] for one in (killed, raised, left, after)] == [0] * 4
    assert [one["below"] for one in (killed, raised, left, after)] == [2] * 4, "the agent and its resource tracker"


READ_BY_TWO = """
import multiprocessing, sys, threading, time
from labkit.engine import forkserver
forkserver.start(sys.argv[1])
read = multiprocessing.forkserver.read_signed

def slowly(descriptor):
    time.sleep(0.3)  # a second reader, if there is one, begins meanwhile
    try:
        return read(descriptor)
    except EOFError:
        time.sleep(0.3)  # so that it would have the last word
        raise

multiprocessing.forkserver.read_signed = slowly
worker = multiprocessing.get_context("forkserver").Process(target=sys.exit, args=(3,))
worker.start()
waiting = threading.Thread(target=worker.join)
waiting.start()
while worker.exitcode is None:
    continue
waiting.join()
print(worker.exitcode)
"""


@pytest.mark.skipif(not forkserver.is_supported(), reason="workers are spawned under this version of Python")
def test_an_exit_status_that_two_threads_ask_for_is_read_once(tmp_path):
    """One waits for the worker's end, as torch's agent does, while another polls, as ours does."""
    command = [sys.executable, "-c", READ_BY_TWO, str(tmp_path)]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=60)
    assert (ended.stdout.split(), ended.returncode) == (["3"], 0), ended.stderr


def test_private_names_of_python_are_in_one_file():
    """Of multiprocessing and atexit, only forkserver.py uses names that begin with an underscore."""
    private = re.compile(
        r"\b(multiprocessing|forkserver|popen_forkserver|resource_tracker|process|util|atexit)\._[a-z]"
    )
    files = [
        file for folder in CODE for file in folder.rglob("*.py") if private.search(file.read_text(encoding="utf-8"))
    ]
    assert [file.name for file in files] == ["forkserver.py"]
