"""Files of the user's that are named like a module: they do not reach the workers, and where they must, they are named.

A module's own folder is on Python's path: the script's, or the current one in a notebook.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launches import HERE

from labkit.repository import REPOSITORY

pytestmark = pytest.mark.slow

ALIKE = ("torch.py", "random.py", "json.py", "tempfile.py", "numpy/__init__.py")
LAUNCH = """
from {plan} import {kind}
from labkit.launching import launch
print(launch({kind}()).status["state"])
"""
PLAN = """
from dataclasses import dataclass
from typing import ClassVar
from faults_plan import Faults

@dataclass(frozen=True, kw_only=True)
class Own(Faults):
    worker: ClassVar[str] = "own_worker"
"""
WORKER = """
import colorsys, own_plan
def measure(worker, point):
    worker.record(iteration=0, seconds=colorsys.rgb_to_hls(0, 0, 0)[0])
"""


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def hide(folder: Path, *names: str) -> Path:
    """Have the folder hold files that are named like modules, none of which may be run."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"raise RuntimeError('{name} was run')\n")
    return folder


def run(script: Path | str, cwd: Path, *flags: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{REPOSITORY}"}
    command = [sys.executable, *flags, str(script)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_files_of_the_current_folder_do_not_stand_in_for_modules(tmp_path):
    """A script that lies elsewhere does not see them, nor do its agent, the forkserver and the workers."""
    script = write(tmp_path / "script", main=LAUNCH.format(plan="faults_plan", kind="Faults")) / "main.py"
    done = run(script, hide(tmp_path / "here", *ALIKE))
    assert (done.stdout.split(), done.returncode) == (["finished"], 0), done.stderr


def test_modules_beside_the_script_are_found_from_any_folder(tmp_path):
    """The plan's and the worker's; a file beside them that is named like a module hides it from no worker."""
    files = {"main": LAUNCH.format(plan="own_plan", kind="Own"), "own_plan": PLAN, "own_worker": WORKER}
    folder = hide(write(tmp_path / "script", **files), "torch.py", "colorsys.py")
    (tmp_path / "here").mkdir()
    done = run(folder / "main.py", tmp_path / "here")
    assert (done.stdout.split(), done.returncode) == (["finished"], 0), done.stderr


def test_modules_of_the_current_folder_are_found_where_the_kernel_finds_them(tmp_path):
    """As in a notebook."""
    folder = hide(write(tmp_path / "here", own_plan=PLAN, own_worker=WORKER), "torch.py")
    done = run(LAUNCH.format(plan="own_plan", kind="Own"), folder, "-c")
    assert (done.stdout.split(), done.returncode) == (["finished"], 0), done.stderr
