"""launch(debug=True): one worker in the kernel's own process. Each test is a process of its own: torch gets loaded."""

import subprocess
import sys

import pytest
from launches import HERE


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=HERE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_worker_runs_in_this_process():
    said = python("""
import os
from labkit import launch
from lessons import start
before = dict(os.environ)
run = launch(start.Hello(gpus=1), debug=True)
print(set(run.rows["pid"]) == {os.getpid()}, dict(os.environ) == before, run.status["state"])
again = launch(start.Hello(gpus=1), debug=True)
print(len(again.rows), launch(start.Hello(gpus=2), progress=False).status["state"])
""")
    assert said.split("\n")[:2] == ["True True finished", "20 finished"]


@pytest.mark.slow
def test_an_exception_arrives_as_it_is_and_several_workers_are_refused():
    said = python("""
import traceback
from labkit import launch
from lessons import start
for plan in (start.Failure(gpus=1, rank=0), start.Hello(gpus=2)):
    try:
        launch(plan, debug=True)
    except ValueError as error:
        print(type(error).__name__, error, "at", traceback.extract_tb(error.__traceback__)[-1].name)
""")
    raised, refused = said.splitlines()
    assert raised == "ValueError this rank fails on purpose at fail"
    assert refused.startswith("PlanError gpus=2: debug=True runs one process; make the plan with gpus=1 at")
