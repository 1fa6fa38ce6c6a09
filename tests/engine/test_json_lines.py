"""Files of rows and events: what is new is read once, what cannot be read is told, and counting parses nothing."""

from __future__ import annotations

import json
import os
import re

import pytest
from faults_plan import Faults

from labkit import node
from labkit.engine import json_lines as lines_module
from labkit.engine.diagnosis import Diagnosis
from labkit.engine.errors import DamagedRun, PlanError
from labkit.engine.json_lines import JsonLines
from labkit.engine.recordings import replay
from labkit.engine.run import Run

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def run() -> Run:
    run = Run.create(Faults(faults=("none", "none")), node.here())
    for rank in (0, 1):
        for point in (0, 1):
            run.append(rank, {"point": point, "seed": 0, "fault": "none", "iteration": 0, "seconds": 0.5})
    return run


def test_only_what_is_new_is_read(tmp_path):
    file = tmp_path / "events.jsonl"
    lines = JsonLines(file)
    assert lines.new_objects() == []
    file.write_text('{"event": 1}\n{"event": 2}\n{"ev')
    assert lines.new_objects() == [{"event": 1}, {"event": 2}]
    assert lines.new_objects() == []
    with file.open("a") as more:
        more.write('ent": 3}\n7\n{"event": 4}\n')
    assert lines.new_objects() == [{"event": 3}, {"event": 4}]
    file.write_text('{"event": 5}\n')  # another file of that name
    assert lines.new_objects() == [{"event": 5}]


def test_the_cost_of_a_look_does_not_grow_with_the_sweep(run, monkeypatch):
    """20,000 points, two of them between two looks: only their bytes are read and parsed."""
    parsed = []
    loads = json.loads
    monkeypatch.setattr(lines_module.json, "loads", lambda line: parsed.append(line) or loads(line))
    diagnosis = Diagnosis(run)
    for point in range(20_000):
        with run.events_file(0).open("a") as events:
            events.write(f'{{"event": "done", "point": {point}}}\n')
        if point % 2:
            assert diagnosis.read()
            assert diagnosis.events(0, "done")[-1]["point"] == point
    assert len(parsed) == 20_000


def test_rows_are_counted_as_they_are_read(run):
    run.append(0, {"point": 1, "status": "out of memory"})
    run.append(0, {"point": 1, "status": "ok", "nested": {"status": "bad", "start_us": "{"}})
    run.append(0, {"point": 1, "span": "copy", "start_us": 1.0, "end_us": 2.0})
    with run.rows_file(1).open("a") as rows:
        rows.write('{"point": 0, "rank": 1, "seed": 0, "status": "ok", "note": "\\"status\\": \\"bad\\" }"}\n')
        rows.write('{"point": 0, "rank": 1, "status": "ok", "start_us": 1.0, "end_us": 2.0}\n')
        rows.write('{"point": 0, "rank": 1, "status": "ok", "half": {"a": 1}\n\n7\n')
        rows.write('{"point": 0, "rank": 1, "status": "ok"')
    table, counted = run.rows, run.tally()
    assert counted["rows"] == len(table) == 7
    assert counted["points"] == table["point"].nunique() == 2
    assert counted["not_ok"] == table.loc[table["status"] != "ok", "status"].value_counts().to_dict()


def test_a_finished_run_is_shown_without_reading_its_rows(run, monkeypatch):
    run.close("finished", launches=1, seconds=1, startup_seconds=1, measuring_seconds=0, measured=run.tally())
    shown = repr(run)
    opened, regular = [], lines_module.open_regular
    monkeypatch.setattr(lines_module, "open_regular", lambda file: opened.append(file.name) or regular(file))
    assert repr(Run(run.folder)) == shown
    assert "2 of 2 measured, 4 rows" in shown
    assert opened
    assert not [name for name in opened if name.startswith("rows")]
    run.append(0, {"point": 0})
    assert "5 rows" in repr(Run(run.folder)), "rows came after the end"


def a_fifo(file) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (a_fifo, "it is not a regular file"),
        (lambda file: os.truncate(file, 20 * 10**9), "it holds 20.0 GB, and at most 1.1 GB"),
    ],
    ids=["a FIFO", "20 GB"],
)
def test_a_file_of_rows_that_is_none(run, harm, why):
    harm(run.rows_file(1))
    said = f"rows-rank1.jsonl cannot be read: {why}"
    with pytest.raises(DamagedRun, match=re.escape(said)):
        _ = run.rows
    assert said in repr(run)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"seconds": "x", "startup_seconds": 1}', "[" * 100_000, "\x00\xff"])
def test_a_broken_status(run, text):
    """The rows can be read, and the receipt says what is wrong."""
    run.status_file.write_text(text, encoding="latin-1")
    kept = replay(run.folder)
    assert len(kept.rows) == 4
    assert "status.json" in repr(kept)
    assert "status.json" in kept._repr_html_()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpus": 3}', "\xff"])
def test_a_broken_node(run, text):
    run.node_file.write_text(text, encoding="latin-1")
    wanted = r"node\.json cannot be read: .*which machine the run was measured on"
    with pytest.raises(DamagedRun, match=wanted) as caught:
        _ = replay(run.folder).rows
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_recorded_plan_of_a_billion_gpus(run, device):
    run.plan_file.write_text(json.dumps(json.loads(run.plan_file.read_text()) | {"gpus": 10**9, "device": device}))
    with pytest.raises(PlanError, match=r"plan\.json: gpus=1000000000: a run has at most 1024 workers"):
        replay(run.folder)


def test_events_without_their_keys_do_not_count(run):
    diagnosis = Diagnosis(run)
    lines = [
        '"started"',
        '"ready"',
        '"point"',
        '"raised", "at": 1.0',
        "[]",
        '"another"',
        '"started", "at": 1, "pid": 7',
    ]
    run.events_file(0).write_text("".join(f'{{"event": {line}}}\n' for line in lines))
    assert diagnosis.read()
    assert (diagnosis.events_read, diagnosis.pid(0), diagnosis.last, diagnosis.culprits()) == (1, 7, {0: "started"}, [])


def test_a_fifo_is_opened_without_waiting(tmp_path):
    os.mkfifo(fifo := tmp_path / "rows.jsonl")
    assert lines_module.size_bytes(fifo, elsewhere=True) == 0
    with pytest.raises(OSError):
        lines_module.open_to_append(fifo)
