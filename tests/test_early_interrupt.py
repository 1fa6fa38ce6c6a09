"""Ctrl-C while `make run` and `make card` still import: one sentence and status 130, whenever it comes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launches import soon

ROOT = Path(__file__).parents[1]
IMPORTED = "import time:"  # a line for each module that has been imported, as Python writes it when asked
INTERRUPTED = (130, -signal.SIGINT)  # the second, 130 to a shell, too, where the interrupt came in an exec()
pytestmark = pytest.mark.timeout(120)


def interrupted(arguments, tmp_path, module, seconds):
    """Return the status of a command that is interrupted so long after it has imported a module, and what it said."""
    places = {"LABKIT_RUNS": str(tmp_path / "runs"), "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-u", "-m", *arguments, "--report", str(tmp_path / "runs" / "report")]
    said, imported = tmp_path / "said", re.compile(rf"^{IMPORTED}.*\| +{re.escape(module)}$", re.M)
    with said.open("w") as file:  # a pipe that nobody reads would stop the command
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | places, start_new_session=True, stderr=file, stdout=subprocess.DEVNULL
        )
    try:
        soon(lambda: imported.search(said.read_text()), seconds=60)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)  # a terminal interrupts the group
        process.wait(timeout=60)
    finally:
        process.kill()
    return process.returncode, [line for line in said.read_text().splitlines() if not line.startswith(IMPORTED)]


COMMANDS = {
    "run": (["labkit.batch", "--notebooks-folder", "FOLDER"], ["argparse", "numpy", "nbformat", "labkit.batch.run"]),
    "card": (["labkit.card", "topology"], ["argparse", "numpy", "labkit.report.kept_reports"]),
}


@pytest.mark.parametrize(
    ("command", "module"), [(name, module) for name, (_, modules) in COMMANDS.items() for module in modules]
)
def test_an_interrupt_of_an_import_is_one_sentence(tmp_path, write_notebook, command, module):
    write_notebook(tmp_path / "notebooks" / "00_long.ipynb", "# Long", "import time; time.sleep(60)")
    arguments = [part.replace("FOLDER", str(tmp_path / "notebooks")) for part in COMMANDS[command][0]]
    status, said = interrupted(arguments, tmp_path, module, seconds=0)
    assert status in INTERRUPTED
    assert len(said) == 1 and said[0].startswith("interrupted"), said


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.02, 0.5, 1, 2])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupt_of_what_comes_then_is_no_traceback(tmp_path, write_notebook, command, seconds):
    write_notebook(tmp_path / "notebooks" / "00_long.ipynb", "# Long", "import time; time.sleep(60)")
    arguments = [part.replace("FOLDER", str(tmp_path / "notebooks")) for part in COMMANDS[command][0]]
    status, said = interrupted(arguments, tmp_path, COMMANDS[command][1][-1], seconds)
    assert not [line for line in said if "Traceback" in line or "KeyboardInterrupt" in line], said
    assert status in INTERRUPTED
