"""Unattended runs keep what they did: earlier reports by date, what is done after a kill, the node to themselves."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit import repository
from labkit.batch import sources
from labkit.batch.__main__ import main
from labkit.batch.resume import EarlierDurations, notebook_digest, shared_digest, time_left_text
from labkit.batch.site import replace_changed
from labkit.report.kept_reports import all_reports, keep_earlier_report
from labkit.report.record import Machine, Outcome, Record

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def no_claims(monkeypatch):
    """Lets the batch recompute no claims: those of all labs take seconds."""
    monkeypatch.setattr(sources, "labs_with_claims", list)


@pytest.fixture
def folder(tmp_path, write_notebook, monkeypatch):
    """Return a folder of two notebooks."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    for name in ("00_first", "01_second"):
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", f"# {name}", "1 + 1")
    return tmp_path / "notebooks"


def run(folder, *arguments):
    report = folder.parent / "report"
    return main(["--notebooks-folder", str(folder), "--report", str(report), *arguments]), report


def names(report):
    return sorted(path.name for path in report.with_name("reports").glob("*"))


def test_a_report_is_kept_before_a_notebook_of_it_runs_again(folder, capsys):
    _, report = run(folder)
    before = (report / "notebooks" / "00_first.ipynb").read_bytes()
    second = (report / "01_second.html").read_bytes()
    assert run(folder, "01")[0] == 0
    (kept,) = names(report)
    assert re.fullmatch(r"\d{8}-\d{6}", kept) and kept in capsys.readouterr().out
    earlier = report.with_name("reports") / kept
    assert (earlier / "01_second.html").read_bytes() == second
    assert (earlier / "notebooks" / "00_first.ipynb").read_bytes() == before
    assert set(Record.load(report / "record.json").outcomes) == {"00_first", "01_second"}
    assert (report / "00_first.html").exists() and (report / "card.json").exists()


def test_what_is_written_anew_leaves_the_kept_report_as_it_was(folder):
    _, report = run(folder)
    run(folder, "01")
    kept = report.with_name("reports") / names(report)[0]
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    run(folder, "--report-only")
    run(folder, "00")
    assert {path: path.read_bytes() for path in before} == before


def test_a_linked_copy_of_a_file_stays_as_it_was_when_the_file_is_replaced(tmp_path):
    new, old, linked = (tmp_path / name for name in ("new", "old", "linked"))
    new.write_text("new")
    old.write_text("old")
    os.link(old, linked)
    replace_changed(new, old)
    assert (old.read_text(), linked.read_text(), sorted(os.listdir(tmp_path))) == (
        "new",
        "old",
        ["linked", "new", "old"],
    )


def test_another_notebook_joins_the_same_report(folder):
    _, report = run(folder, "00")
    run(folder, "01")
    assert names(report) == []


def test_two_reports_of_one_second_are_both_kept(tmp_path):
    for _ in range(2):
        report = tmp_path / "report"
        Record(outcomes={"00_a": Outcome("00_a", "A", "2026-11-22T10:00:00")}).save(report / "record.json")
        assert keep_earlier_report(report, ["00_a"]) is not None
    assert names(report) == ["20261122-100000", "20261122-100000-1"]
    assert all_reports(report)[-1] == report


def test_a_report_whose_record_is_damaged_is_kept_too(tmp_path):
    report = tmp_path / "report"
    report.mkdir()
    (report / "index.html").write_text("a report")
    (report / "record.json").write_text("{")
    kept = keep_earlier_report(report, ["00_a"])
    assert kept is not None and (kept / "index.html").read_text() == "a report"


def test_resume_leaves_out_what_is_done_with_the_same_code_and_parameters(folder, write_notebook, capsys):
    write_notebook(folder / "00_first.ipynb", "# First", ("size = 'auto'", ["parameters"]))
    run(folder, "-p", "size", "small")
    capsys.readouterr()
    assert run(folder, "--resume", "-p", "size", "small")[0] == 0
    assert "0 of 2 notebooks to run" in capsys.readouterr().out
    run(folder, "--resume", "-p", "size", "auto")  # another value for the notebook that has the parameter
    assert "1 of 2 notebooks to run" in capsys.readouterr().out
    write_notebook(folder / "01_second.ipynb", "# Second", "2 + 2")
    run(folder, "--resume", "-p", "size", "auto")
    assert "[1/1] 01_second: ok" in capsys.readouterr().out


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return an invented checkout: code and data of each kind, and a notebook."""
    monkeypatch.setattr(repository, "REPOSITORY", tmp_path)
    monkeypatch.setattr(repository, "CODE", (tmp_path / "labkit", tmp_path / "notebooks" / "lessons"))
    for name in CHANGED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    return tmp_path


CHANGED = (
    "labkit/engine/plan.py",
    "labkit/node/specs.csv",
    "notebooks/02_broadcast.ipynb",
    "notebooks/lessons/broadcast/plan.py",
    "notebooks/lessons/broadcast/claims.csv",
    "notebooks/lessons/broadcast/measures.csv",
    "data/models/gpt2.json",
    "data/published/broadcast.csv",
    "data/published/topology/h200x4.txt",
)


def digest(checkout, label="4 × NVIDIA H200", torch="2.9"):
    return notebook_digest(
        checkout / "notebooks" / "02_broadcast.ipynb", shared_digest(Machine(label, versions={"torch": torch}))
    )


@pytest.mark.quick
@pytest.mark.parametrize("name", CHANGED)
def test_a_notebook_runs_again_where_something_that_it_reads_has_changed(checkout, name):
    before = digest(checkout)
    (checkout / name).write_text("texts")
    assert digest(checkout) != before
    (checkout / name).write_text("text")
    assert digest(checkout) == before


@pytest.mark.quick
def test_a_notebook_runs_again_on_another_machine_and_where_a_file_has_moved(checkout):
    before = digest(checkout)
    assert len({before, digest(checkout, label="a laptop"), digest(checkout, torch="2.10")}) == 3
    lesson = checkout / "notebooks" / "lessons" / "broadcast"
    (lesson / "claims.csv").rename(lesson.parent / "claims.csv")
    assert digest(checkout) != before


def batch(folder, *arguments, **more):
    command = [sys.executable, "-m", "labkit.batch", "--notebooks-folder", folder, "--report", folder.parent / "report"]
    return subprocess.Popen([*map(str, command), *arguments], cwd=ROOT, text=True, **more)


def wait_for(path, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


def test_after_a_kill_a_run_takes_up_where_it_was(folder, write_notebook, capsys):
    marker, go = folder.parent / "marker", folder.parent / "go"
    wait = f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\nwhile not pathlib.Path({str(go)!r}).exists():"
    write_notebook(folder / "01_second.ipynb", "# Second", f"{wait} time.sleep(0.1)")
    process = batch(folder)
    try:
        wait_for(marker)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    finally:
        process.kill()
    started = Record.load(folder.parent / "report" / "record.json").outcomes["00_first"].started
    go.touch()
    status, report = run(folder, "--resume")
    outcomes = Record.load(report / "record.json").outcomes
    assert status == 0 and "1 of 2 notebooks to run" in capsys.readouterr().out
    assert outcomes["00_first"].started == started and outcomes["01_second"].status == "ok"
    assert names(report) == []


def test_of_two_runs_on_a_node_the_second_leaves_or_waits(folder, write_notebook, tmp_path):
    marker, go = folder.parent / "marker", folder.parent / "go"
    wait = f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\nwhile not pathlib.Path({str(go)!r}).exists():"
    write_notebook(folder / "00_first.ipynb", "# First", f"{wait} time.sleep(0.1)")
    other = write_notebook(tmp_path / "other" / "notebooks" / "00_other.ipynb", "# Other", "1").parent
    first = batch(folder, "00", stdout=subprocess.DEVNULL)
    waiting = None
    try:
        wait_for(marker)
        left_at_once = batch(other, stderr=subprocess.PIPE)
        sentence = left_at_once.communicate(timeout=60)[1].strip()
        assert left_at_once.returncode == 2
        assert f"process {first.pid}" in sentence and "--wait" in sentence and len(sentence.splitlines()) == 1
        waiting = batch(other, "--wait", stdout=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"})
        assert waiting.stdout is not None and f"process {first.pid}" in waiting.stdout.readline()
        assert not (other.parent / "report" / "record.json").exists()
        go.touch()
        assert first.wait(60) == 0 and waiting.wait(60) == 0
    finally:
        for process in (first, waiting):
            if process is not None:
                process.kill()
    assert Record.load(other.parent / "report" / "record.json").outcomes["00_other"].status == "ok"


def test_remaining_time_is_that_of_earlier_runs_on_this_machine(tmp_path):
    machine, report = Machine("4 × NVIDIA H200"), tmp_path / "report"
    outcomes = {
        "00_a": Outcome("00_a", "A", "2026-11-22T10:00:00", 60.0, node=machine.label),
        "01_b": Outcome("01_b", "B", "2026-11-22T10:01:00", 30.0, node="a laptop"),
        "02_c": Outcome("02_c", "C", "2026-11-22T10:01:00", 5.0, "failed", node=machine.label),
    }
    Record(outcomes=outcomes).save(report / "record.json")
    clock = EarlierDurations(report, machine)
    assert clock.time_left([("00_a", {}), ("01_b", {}), ("02_c", {})]).startswith("about 1 min 00 s left without 2")
    assert clock.time_left([("00_a", {"size": "small"})]) == ""
    assert time_left_text([3.0, 4.0]) == "about 7.0 s left"


def test_a_record_of_an_earlier_version_is_read(tmp_path):
    told = {"machine": {"label": "x", "facts": {}, "versions": {}}, "outcomes": {}}
    told["outcomes"]["00_a"] = {"name": "00_a", "title": "A", "started": "2026-11-22T10:00:00", "seconds": 1.0}
    (tmp_path / "record.json").write_text(json.dumps(told))
    assert Record.load(tmp_path / "record.json").outcomes["00_a"].readings == []
