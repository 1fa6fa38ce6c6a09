"""`make run` and `make grade` on a disk that is full: one sentence with the place; what was done before is kept."""

import csv
import json
import os
import subprocess
from pathlib import Path

import nbformat
import pytest

from labkit.batch import sources
from labkit.batch.__main__ import main as run
from labkit.tools import grade

MIB = 2**20
NO_ROOM = "cannot be written any more (No space left on device)"


@pytest.fixture
def disk(tmp_path):
    """Return a file system of 9 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("nobody but root mounts a file system, and not everywhere")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path, free: int) -> Path:
    """Leave so many bytes of a disk."""
    there = os.statvfs(disk)
    (disk / "fill").write_bytes(bytes(there.f_bavail * there.f_frsize - free))
    return disk / "fill"


@pytest.mark.parametrize("free", [0.02, *(pytest.param(mib, marks=pytest.mark.slow) for mib in (0.3, 0.6)), 1.2])
def test_a_run_whose_report_finds_no_room(disk, write_notebook, monkeypatch, capsys, free):
    monkeypatch.setattr(sources, "labs_with_claims", list)
    folder, report = disk.parent / "notebooks", disk / "report"
    for name in ("00_first", "01_second", "02_third"):
        write_notebook(folder / f"{name}.ipynb", "# Long", "print('x' * 300_000)")
    filled = fill(disk, int(free * MIB))
    arguments = ["--notebooks-folder", str(folder), "--report", str(report)]
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    said = capsys.readouterr()
    sentences = [line for line in (said.out + said.err).splitlines() if NO_ROOM in line]
    assert stop.value.code == 2 and len(sentences) == 1 and str(report) in sentences[0], said
    assert not [*report.rglob("*.part")]
    record = report / "record.json"
    kept = json.loads(record.read_text())["outcomes"] if record.exists() else {}
    assert kept
    for name, outcome in kept.items():
        if outcome["status"] == "ok":
            nbformat.read(report / "notebooks" / f"{name}.ipynb", as_version=4)
    filled.unlink()
    assert run([*arguments, "--report-only"]) in (0, 1)
    assert all((report / f"{name}.html").exists() for name, outcome in kept.items() if outcome["status"] == "ok")


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("free", [0.02, 0.05, 0.1])
def test_grades_that_find_no_room_leave_those_before(disk, capsys, free):
    for number in range(9):
        student = disk.parent / "submissions" / f"student {number}"
        student.mkdir(parents=True)
        (student / "accounting_devices_needed.py").write_text("...\n#" + "x" * 12_000)
    fill(disk, int(free * MIB))
    out = disk / "grades"
    assert grade.main([str(disk.parent / "submissions"), "--out", str(out), "--seconds", "10"]) == 2
    said = capsys.readouterr()
    _, sentence = said.err.splitlines()  # the first one says that there is no secret
    assert sentence.startswith(f"make grade: {out} {NO_ROOM}; the grades of the students before 'student ")
    number = int(sentence.rpartition("'student ")[2][0])
    rows = list(csv.DictReader((out / "grades.csv").open(encoding="utf-8")))
    assert {row["student"] for row in rows} == {f"student {earlier}" for earlier in range(number)}
    assert all(None not in row.values() and len(row) == 8 for row in rows)
    assert not [*out.rglob("*.part")]
    pages = [*out.glob("*.html")]
    assert len(pages) >= number and all(page.read_text().rstrip().endswith("</html>") for page in pages)
