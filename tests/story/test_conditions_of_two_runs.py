"""Charts and tables that set two runs side by side say what differs between their conditions, and else nothing."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from labkit import replay
from labkit.charts import canvas
from labkit.engine.run import Run
from labkit.node.conditions import Conditions, HostState, RankState, Snapshot
from labkit.provenance import fact, made_from, sources

RECORDED = "h200x4/start/hello"


@pytest.fixture
def run_under(tmp_path):
    """Return a function that copies the recorded run as one of this machine, measured under other conditions."""

    def copy(name: str, enqueue_us: float = 7.3, **node) -> Run:
        recorded, run = replay(RECORDED), Run(tmp_path / name)
        run.folder.mkdir()
        for file in (recorded.plan_file, recorded.status_file, *recorded.rows_files()):
            (run.folder / file.name).write_bytes(file.read_bytes())
        versions = recorded.node.versions | {"torch": node.pop("torch", "2.11.0")}
        run.node_file.write_text(replace(recorded.node, versions=versions, **node).to_json())
        look = Snapshot(HostState(cores=64), (), tuple(RankState(rank, 60.0, enqueue_us) for rank in range(4)))
        run.keep_conditions(Conditions(look, look).to_json())
        return run

    return copy


def test_alike_conditions_add_nothing(run_under):
    tables = [run_under(name).rows for name in ("one", "other")]
    assert "differs" not in sources(*tables)
    assert fact(tables[0], "conditions")["enqueue_us"] == 7.3


def test_a_footer_names_what_differs(run_under):
    ours, theirs = run_under("ours", 14.2).rows, run_under("theirs", torch="2.13.0").rows
    footer = sources(ours, theirs)
    assert "differs: torch 2.11.0 | 2.13.0" in footer
    assert "differs: the slowest rank's time to enqueue a kernel 14.2 µs | 7.3 µs" in footer
    assert fact(made_from(pd.DataFrame(), ours, theirs), "source") == footer, "a table made of both says so, too"
    figure, _ = canvas.canvas()
    drawn = canvas.finish(figure, footer)
    assert "differs: torch" in drawn.get_supxlabel()


def test_conditions_are_read_again_when_they_are_written(run_under):
    run = run_under("growing")
    assert run.key_conditions()["enqueue_us"] == 7.3
    kept = json.loads(run.conditions_file.read_text())
    kept["after"]["ranks"] = kept["before"]["ranks"] = [{"rank": 0, "enqueue_us": 20.0}]
    run.keep_conditions(json.dumps(kept))
    assert run.key_conditions()["enqueue_us"] == 20.0
