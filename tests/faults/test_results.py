"""What workers measured is kept: odd values, half-written lines, lost files, and a disk that is full or read-only."""

from __future__ import annotations

import math
import subprocess

import pytest
from failing_launches import failed, launch, nothing_left, place, works
from failing_plan import Failing

from labkit.engine.errors import NowhereToWrite, WorkerDied, WorkerRaised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
MAKE_ROOM = "Free some space, or set LABKIT_RUNS to a folder on a disk that has some"


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Return a function that mounts a disk of so many bytes for the runs to go to, and returns its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounts = 0

    def mount(options: str):
        nonlocal mounts
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
        mounts += 1
        monkeypatch.setenv("LABKIT_RUNS", str(folder))
        return folder

    yield mount
    for _ in range(mounts):
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_odd_values_come_back_as_they_were():
    run = launch(Failing(faults=("values",)))
    nothing_left(run)
    rows = run.rows[run.rows["iteration"] == 1]
    assert rows["rank"].tolist() == [0, 1]
    for row in rows.to_dict("records"):
        assert math.isnan(row["nan_ms"]) if row["rank"] else row["nan_ms"] == 0.5
        assert row["inf_ms"] == math.inf
        assert row["note"] == 'two\nlines\r, "quotes", \u2028 and é 漢 🙂 \ud800'
        assert [row[name] for name in ("numpy_ms", "count", "flag", "torch_ms", "half")] == [1.5, 7, True, 2.5, 0.5]
        assert row["several"] == [1.0, 2]
    assert "nothing" not in rows, "no rank has it"
    assert "1 of 1 measured, 4 rows" in repr(run)
    works()


@pytest.mark.parametrize(("fault", "kind"), [("a tensor", "Tensor"), ("a complex", "complex64")])
def test_a_value_that_no_row_can_hold(fault, kind):
    error = failed(WorkerRaised, "none", fault)
    said = f"record(loss=…): a row holds numbers, strings, and lists or dicts of them, not a {kind}"
    assert error.sentence.startswith(f"rank 1 raised TypeError: {said}")
    assert place("iteration=1, loss=value", "failing_results.py") + "<lambda>" in error.detail


@pytest.mark.quick
def test_a_half_written_row_costs_no_other():
    error = failed(WorkerDied, "none", "half a row", "none")
    assert error.sentence.startswith("rank 1 was killed by SIGKILL")
    assert b'"seconds": 0.\n{"point": 2' in error.run.rows_file(1).read_bytes()
    assert error.run.rows.groupby("point")["rank"].nunique().tolist() == [2, 2, 2]


@pytest.mark.parametrize(("fault", "ranks"), [("lose the rows", [0, 0]), ("lose the log", [0, 0, 1, 1])])
def test_a_lost_file_of_rows_or_of_what_was_printed(fault, ranks):
    """What that rank wrote is lost with the file; all else is read as ever."""
    run = launch(Failing(faults=(fault, "none")))
    nothing_left(run)
    assert (run.status["state"], run.log(1)) == ("finished", "")
    assert sorted(run.rows["rank"]) == ranks
    works()


def test_a_lost_file_of_events():
    """A rank that nobody heard say "finished" has not finished."""
    error = failed(WorkerDied, "lose the events")
    assert error.sentence.startswith("rank 1 ended before it had finished, without an error status")


def test_a_full_device_under_one_file():
    error = failed(WorkerRaised, "none", "a full device")
    assert error.sentence.startswith("rank 1 raised OSError: [Errno 28] No space left on device at point 1 (")
    assert error.sentence.endswith(f"cannot be written: No space left on device. {MAKE_ROOM}")
    assert place("record(iteration=1)", "failing_results.py") + "record_to_a_full_disk" in error.detail


@pytest.mark.quick
def test_a_disk_that_fills_up(disk):
    """Not even the worker's own words, or how the run ended, can be written any more."""
    folder = disk("size=1m")
    with pytest.raises((WorkerDied, WorkerRaised)) as caught:  # what its patience ends, is WorkerHung
        launch(Failing(faults=("none", "fill the disk")), patience_s=20)
    error = caught.value
    assert error.rank == 1
    assert error.sentence.endswith(f"{error.run.folder} cannot be written: No space left on device. {MAKE_ROOM}")
    assert error.run.status["why"] == error.sentence
    assert (error.run.rows["point"] == 0).sum() == 2
    nothing_left(error.run)
    (error.run.folder / "filler").unlink()
    assert works().folder.parent == folder


@pytest.mark.parametrize(("options", "why"), [("ro", "Read-only file system"), ("size=1m", "No space left on device")])
def test_a_disk_that_cannot_be_written_from_the_start(disk, monkeypatch, options, why):
    folder = disk(options)
    if options != "ro":
        with (folder / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match=why):
            while file.write(bytes(2**14)):
                continue
    with pytest.raises(NowhereToWrite) as caught:
        launch(Failing())
    assert str(caught.value) == f"{folder} cannot be written: {why}. {MAKE_ROOM}"
    assert {file.name for file in folder.iterdir()} <= {"filler"}
    monkeypatch.setenv("LABKIT_RUNS", str(folder.parent / "runs"))
    works()
