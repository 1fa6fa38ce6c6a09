"""A run's spans as a trace: every span is there, and on no thread do two overlap."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise

import pytest

from labkit import replay, save_trace


def events_of(run, folder):
    said = save_trace(run).data
    (file,) = (folder / "traces").iterdir()
    assert f"traces/{file.name}" in said and "ui.perfetto.dev" in said
    return json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["h200x2/sharding/profiles", "h200x4/pipeline/schedules"])
def test_every_span_is_there_and_none_overlaps_on_its_thread(name, folder):
    run = replay(name)
    events = events_of(run, folder)
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(run.spans) and min(event["ts"] for event in spans) == 0
    threads = defaultdict(list)
    for event in spans:
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for each in threads.values():
        each.sort()
        assert all(end <= start + 0.02 for (_, end), (start, _) in pairwise(each))
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert named == {*threads}


def test_names_tell_the_setting_the_rank_and_the_step(folder):
    events = events_of(replay("h200x4/pipeline/schedules"), folder)
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert any("schedule=1f1b" in name for name in processes) and len({*processes}) == len(processes)
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
        f"rank {rank}" for rank in range(4)
    }
    assert {"F 0", "B 7"} <= {event["name"] for event in events}


def test_a_run_without_a_timeline_says_so(folder):
    assert "no timeline" in save_trace(replay("h200x4/pipeline/trial")).data and not (folder / "traces").exists()
