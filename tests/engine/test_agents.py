"""One agent beside a kernel, and nothing of it left: after a reload, and after both were killed together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import psutil
import pytest
from launches import HERE, soon

pytestmark = pytest.mark.timeout(120)

RELOADING = """
import importlib, json, sys
import psutil

def agents():
    return [process.pid for process in psutil.Process().children() if "labkit.engine.agent" in process.cmdline()]

def launch():
    import faults_plan
    from labkit.engine.launch import launch
    return launch(faults_plan.Faults()).status["state"]

told = [[launch(), agents()]]
for name in sorted(name for name in sys.modules if name.startswith("labkit.engine")):
    importlib.reload(sys.modules[name])
importlib.reload(sys.modules["faults_plan"])
told.append([launch(), agents()])
for name in [name for name in sys.modules if name.startswith(("labkit", "faults"))]:
    del sys.modules[name]
told.append([launch(), agents()])
print(json.dumps(told))
"""


def test_a_reloaded_engine_keeps_its_agent():
    """As with autoreload, or after the modules were removed and imported again."""
    command = [sys.executable, "-c", RELOADING]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=100)
    told = json.loads(ended.stdout)
    assert [state for state, _ in told] == ["finished"] * 3
    assert [len(agents) for _, agents in told] == [1, 1, 1]
    assert len({agent for _, (agent,) in told}) == 1
