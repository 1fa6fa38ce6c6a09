"""A run's folder: what is in it can be read, however its workers ended."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from faults_plan import Faults

from labkit import node
from labkit.engine import recordings
from labkit.engine import run as run_module
from labkit.engine.files import replace_file
from labkit.engine.json_lines import file_bytes
from labkit.engine.recordings import replay
from labkit.engine.run import Run, read_lines


@pytest.fixture
def create(tmp_path, monkeypatch):
    """Return a function that creates the run of a plan with two CPU ranks, in the test's own folder."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    for module in (run_module, recordings):
        monkeypatch.setattr(module, "RECORDED", tmp_path / "recorded")

    def make(*faults: str, **knobs) -> Run:
        return Run.create(Faults(faults=faults or ("none",), **knobs), node.here())

    return make


def test_no_reader_meets_half_of_a_file(create, monkeypatch):
    """Another process may look at a run while it begins: its plan and node appear whole, under their names."""
    unreadable = []

    def slow(file: Path, text: str, **how: str) -> None:
        with file.open("w", **how) as writer:
            writer.write(text[:10])
            writer.flush()
            for other in file.parent.glob("*.json"):
                try:
                    json.loads(other.read_text())
                except json.JSONDecodeError:
                    unreadable.append(other.name)
            writer.write(text[10:])

    monkeypatch.setattr(Path, "write_text", slow)
    run = create()
    assert run.plan.faults == ("none",) and run.node == node.here()
    assert not unreadable


def test_a_file_that_is_replaced_keeps_its_mode_and_no_draft_stays(tmp_path):
    file = tmp_path / "answers.json"
    replace_file(file, "old", mode=0o600)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o440)
    replace_file(file, "new")
    with pytest.raises(UnicodeEncodeError):
        replace_file(file, "half \ud800")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o440)
    assert [*tmp_path.iterdir()] == [file]


def test_what_is_written_is_read_whatever_the_locale(tmp_path):
    """A batch system may set LC_ALL=C, while what a node tells is no ASCII, and files are read as UTF-8."""
    file, name = tmp_path / "node.json", "Prüfstand 4 µs"
    write = "import sys; from pathlib import Path; from labkit.engine.files import replace_file as write"
    write += "; write(Path(sys.argv[1]), bytes.fromhex(sys.argv[2]).decode())"
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", write, file, name.encode().hex()], env=environment, check=True)
    assert file_bytes(file).decode() == name


def measured(run: Run, rank: int, point: int, seconds: float, iteration: int = 0, **more) -> None:
    row = {"point": point, "seed": 0, "fault": run.plan.faults[point], "iteration": iteration, "seconds": seconds}
    run.append(rank, row | more)


def closed(run: Run, state: str = "finished", launches: int = 1, why: str = "") -> Run:
    times = {"seconds": 12.0, "startup_seconds": 8.0, "measuring_seconds": 4.0}
    run.close(state, why=why, launches=launches, processes_started=2 * launches, processes_left=0, **times)
    return run


def test_rows_and_spans_are_kept_apart_and_rows_stand_in_the_order_of_points_then_ranks_then_time(create):
    run = create("none", "none")
    for rank, point, iteration in itertools.product((1, 0), (0, 1), (0, 1)):
        measured(run, rank, point, rank + 1.0, iteration)
    run.append(0, {"point": 0, "seed": 0, "span": "copy", "lane": "0 → 1", "start_us": 1.0, "end_us": 4.5})
    order = run.rows[["point", "rank", "iteration"]].values.tolist()
    assert order == sorted(order) and len(order) == 8
    assert (run.rows["seconds"] == run.rows["rank"] + 1.0).all()
    assert "start_us" not in run.rows
    assert run.spans[["span", "lane", "end_us"]].values.tolist() == [["copy", "0 → 1", 4.5]]
    assert "seconds" not in run.spans


def test_a_run_without_rows_can_be_shown(create):
    run = create()
    assert run.rows.empty
    assert run.spans.empty
    assert run.medians(["fault"], "seconds").empty
    assert "0 of 1 measured, 0 rows" in repr(run)
    assert run.log(0) == ""


def test_values_that_are_no_numbers_come_back(create):
    run = create()
    measured(run, 0, 0, float("nan"), note="two\nlines\rand \u2028 a third", bucket=None)
    measured(run, 1, 0, float("inf"), note='quotes " and \\')
    assert run.rows["seconds"].isna().tolist() == [True, False]
    assert run.rows["seconds"].iloc[1] == float("inf")
    assert "bucket" not in run.rows, "nobody said it"
    assert run.rows["note"].tolist() == ["two\nlines\rand \u2028 a third", 'quotes " and \\']


def test_what_is_no_row_is_left_out(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a": 1}\n\n7\n[1]\n\xff\xfe\n{"a": 2}\n{"a')
    assert read_lines(file) == [{"a": 1}, {"a": 2}]
    assert read_lines(tmp_path / "missing.jsonl") == []


def test_medians_leave_warm_ups_out_and_take_the_slowest_rank(create):
    run = create("none", "none")
    for iteration, seconds in enumerate((90.0, 1.0, 2.0, 3.0, 4.0)):
        measured(run, 0, 0, seconds, iteration, warm_up=iteration == 0)
        measured(run, 1, 0, seconds + 0.5, iteration, warm_up=iteration == 0)
    table = run.medians(["point"], "seconds")
    assert table.to_dict("records") == [
        {"point": 0, "seconds": 3.0, "spread_seconds": pytest.approx(0.75), "count": 4, "status": "ok"}
    ]
    assert table.attrs["source"] == run.source


def test_a_failed_row_is_no_measurement(create):
    run = create("none", "none")
    for iteration, status in enumerate(("ok", "wrong copy on GPU 1", "ok")):
        measured(run, 0, 0, 1.0 + iteration, iteration, status=status)
        measured(run, 0, 1, 1.0, iteration)
    table = run.medians(["point"], "seconds").set_index("point")
    assert table["status"].tolist() == ["wrong copy on GPU 1", "ok"]
    assert table.loc[0, ["seconds", "count"]].tolist() == [2.0, 2]


def test_medians_of_points_that_all_ran_out_of_memory(create):
    run = create("oom")
    for rank in (0, 1):
        run.append(rank, {"point": 0, "seed": 0, "fault": "oom", "status": "out of memory"})
    (row,) = run.medians(["fault"], "seconds").to_dict("records")
    assert (row["fault"], row["count"], row["status"]) == ("oom", 0, "out of memory")
    assert row["seconds"] != row["seconds"], "NaN"


def test_entries_have_the_columns_that_are_asked_for_where_nothing_was_measured(create):
    run = create("oom")
    run.append(0, {"point": 0, "seed": 0, "fault": "oom", "status": "out of memory"})
    assert run.entries("memory", ["fault", "peak_mib"]).empty
    run.append(1, {"point": 0, "seed": 0, "fault": "oom", "status": "ok", "entry": "memory"})
    (row,) = run.entries("memory", ["fault", "peak_mib"]).to_dict("records")
    assert (row["fault"], row["rank"]) == ("oom", 1) and row["peak_mib"] != row["peak_mib"], "NaN"


def test_a_knob_that_is_none_keeps_its_setting(create):
    run = create("none", "none")
    measured(run, 0, 0, 1.0, bucket=None)
    measured(run, 0, 1, 3.0, bucket=25)
    assert run.medians(["bucket"], "seconds")["status"].tolist() == ["ok", "ok"]
    assert sorted(run.medians(["bucket"], "seconds")["seconds"]) == [1.0, 3.0]


def test_the_receipt_says_what_it_was_and_cost(create):
    run = create("none", "oom")
    measured(run, 0, 0, 1.0)
    run.append(0, {"point": 1, "seed": 0, "fault": "oom", "status": "out of memory"})
    assert "going on" in repr(run)
    assert run.seconds != run.seconds, "NaN while it goes on"
    text = repr(closed(run, launches=2))
    assert "faults · faults, finished" in text
    assert "2 × cpu" in text
    assert "2 of 2 measured, 2 rows" in text
    assert "12.0 s: 8.0 s start-up, 4.0 s measuring" in text
    assert "2: a point ended its workers; fresh ones took up the rest" in text
    assert "4 started, 0 left" in text
    assert "1 × out of memory" in text
    assert str(run.folder) in text


def test_a_receipt_in_a_notebook_cannot_carry_markup(create):
    run = closed(create(), "failed", why="rank 1 raised ValueError: <script>alert(1)</script> & more")
    shown = run._repr_html_()
    assert "failed: rank 1 raised" in shown
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in shown


def test_folders_are_private(create):
    run = create()
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (run.folder, run.logs)] == [0o700, 0o700]


def test_two_runs_in_the_same_second_have_two_folders(create):
    runs = [create() for _ in range(5)]
    assert len({run.folder for run in runs}) == 5
    assert all(run.plan == runs[0].plan for run in runs)


def test_a_run_on_the_cpu_names_no_gpu_of_its_node(create):
    run = create()
    gpus = (node.Gpu(0, "NVIDIA H200"),)
    run.node_file.write_text(dataclasses.replace(node.here(), gpus=gpus).to_json())
    assert "H200" not in run.source
    run.plan_file.write_text(Faults(device="cuda", gpus=1).to_json())
    assert "1 × NVIDIA H200" in Run(run.folder).source


def test_the_source_is_named(create):
    run = closed(create())
    day = run.status["date"]
    label = dataclasses.replace(node.here(), gpus=()).label  # the plan's ranks are CPU processes
    assert run.source == f"measured here, {label}, {day}"
    assert run.rows.attrs["source"] == run.source
    small = closed(create(size="small"))
    assert small.source == f"measured here, {label}, {day}, small size"
    assert Run(small.folder, recorded=True).source == f"recorded on {label}, {day}, small size"


def test_a_kept_run_can_be_replayed_by_name_and_by_path(create):
    run = create()
    measured(run, 0, 0, 1.0)
    run.log_file(0).write_text("a log with a path of this machine")
    kept = closed(run).keep("a_machine/faults")
    assert not (kept / "logs").exists()
    for place in ("a_machine/faults", kept, str(kept), run.folder):
        again = replay(place)
        assert again.recorded and again.source.startswith("recorded on")
        assert (again.plan, again.node, again.rows["seconds"].tolist()) == (run.plan, run.node, [1.0])
    measured(run, 1, 0, 2.0)
    run.keep("a_machine/faults")
    assert len(replay("a_machine/faults").rows) == 2, "an earlier run of that name is replaced"


@pytest.mark.parametrize("name", ["", "a_machine"])
def test_keep_overwrites_nothing_but_a_run(create, name):
    kept = create().keep("a_machine/faults")
    with pytest.raises(FileExistsError, match="is no recorded run"):
        create().keep(name)
    assert kept.exists()


def test_a_replay_of_nothing_names_what_is_recorded(create):
    with pytest.raises(FileNotFoundError, match="'nowhere'; recorded are: none yet"):
        replay("nowhere")
    create().keep("a_machine/faults")
    with pytest.raises(FileNotFoundError, match="recorded are: a_machine/faults"):
        replay("nowhere")


def test_a_recorded_plan_may_know_more_gpus_than_its_node_shows(create):
    """A CPU run has no GPU index; so has a rank beyond the GPUs that a damaged node.json lists."""
    run = create()
    plan = json.loads(run.plan_file.read_text()) | {"device": "cuda", "gpus": 4}
    run.plan_file.write_text(json.dumps(plan))
    known = [gpu.index for gpu in run.node.gpus[:4]]
    assert [run.gpu(rank) for rank in range(4)] == known + [None] * (4 - len(known))


def test_a_runs_folder_that_the_locale_cannot_read_tells_the_locale():
    code = "from labkit.engine.run_folder import runs_folder; runs_folder()"
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LABKIT_RUNS": "/tmp/größe"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | settings, capture_output=True)
    assert b"cannot be read in the locale's encoding, ascii: set LC_ALL=C.UTF-8" in done.stderr
