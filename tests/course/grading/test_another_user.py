"""A small class graded by a user who is not root, in a real process of that user: everything works, and is told."""

import csv
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.course.source import code_of
from labkit.repository import REPOSITORY

USER = 54321
DEVICES = "accounting.devices_needed"
RIGHT = code_of("lessons.accounting.solutions.devices_needed")
CLASS = {
    "right": RIGHT,
    "wrong": RIGHT.replace("ceil(", "int("),
    "endless": "def devices_needed(total_gib, device_gb):\n    while True:\n        pass\n",
    "hungry": "import os, time\ndef devices_needed(total_gib, device_gb):\n    for _ in range(6):\n"
    "        if os.fork() == 0:\n            block = b'x' * 150 * 2**20\n            time.sleep(60)\n"
    "    time.sleep(60)\n",
    "thief": "from lessons.accounting.solutions import devices_needed\n",
}
WHY = {
    "right": "",
    "wrong": "rounded down",
    "endless": "did not come back within 12 s",
    "hungry": "more than 512 MiB of memory together",
    "thief": "out of reach",
}
ROOT_MAY = os.geteuid() == 0 and shutil.which("setpriv") and shutil.which("unshare")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ROOT_MAY, reason="only root, with setpriv and unshare, can start a process of another user"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def home():
    """Return a folder of that user; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-user-"))
    for student, code in CLASS.items():
        (folder / "submissions" / student).mkdir(parents=True)
        cell = new_code_cell(f"%%answer {DEVICES}\n{code}")
        nbformat.write(new_notebook(cells=[cell]), folder / "submissions" / student / "12_accounting.ipynb")
    for place in [folder, *folder.rglob("*")]:
        os.chown(place, USER, USER)
    yield folder
    shutil.rmtree(folder)


def as_another_user(home: Path, *command: str, path: str, status: int = 0) -> str:
    """Run a command as that user, without any right of root, and return what it prints.

    Where Python or the checkout lies in a folder that is closed to others, the command sees a file system in which
    they are open; nothing changes outside of that process.
    """
    needed = {os.path.realpath(place) for place in (sys.base_prefix, sys.prefix, REPOSITORY)}
    closed: dict[Path, list[str]] = {}
    for place in sorted(needed):
        shut = [folder for folder in reversed(Path(place).parents) if not folder.stat().st_mode & 0o001]
        if shut:
            closed.setdefault(shut[0], []).append(place)
    lines = ["set -e"]
    with tempfile.TemporaryDirectory() as aside:
        for number, (folder, places) in enumerate(closed.items()):
            kept = {place: f"{aside}/{number}-{at}" for at, place in enumerate(places)}
            lines += [f"mkdir {spare} && mount --bind {place} {spare}" for place, spare in kept.items()]
            lines += [f"mount -t tmpfs -o mode=755 open {folder}"]
            lines += [f"mkdir -p {place} && mount --bind {spare} {place}" for place, spare in kept.items()]
        user = f"setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all --bounding-set=-all"
        own = {"HOME": str(home), "PATH": path, "LABKIT_RUNS": f"{home}/runs", "PYTHONDONTWRITEBYTECODE": "1"}
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in own.items())
        lines += [f"exec {user} env -i {settings} {shlex.join(command)}"]
        outside = ["unshare", "--mount", "--propagation=private", "bash", "-c", "\n".join(lines)]
        done = subprocess.run(outside, cwd=REPOSITORY, capture_output=True, text=True)
    if "mount" in done.stderr and "permission denied" in done.stderr:
        pytest.skip(f"root may not mount here: {done.stderr.strip()}")
    assert done.returncode == status, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_another_user_grades_a_class(home):
    command = [sys.executable, "-m", "labkit.tools.grade", f"{home}/submissions", "--out", f"{home}/grades"]
    assert "no answer was run" in as_another_user(home, *command, path=str(home), status=2), "unshare is not there"
    assert not (home / "grades").exists()
    command += ["--seconds", "12", "--memory-mib", "512", "--jobs", "2"]
    as_another_user(home, *command, path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert (home / "grades" / "grades.csv").stat().st_uid == USER
    rows = list(csv.DictReader((home / "grades" / "grades.csv").open(encoding="utf-8")))
    of_exercise = {row["student"]: row for row in rows if row["exercise"] == DEVICES}
    assert {student: int(row["points"]) for student, row in of_exercise.items()} == {
        student: int(student == "right") for student in CLASS
    }
    for student, why in WHY.items():
        assert why in of_exercise[student]["why"], of_exercise[student]
