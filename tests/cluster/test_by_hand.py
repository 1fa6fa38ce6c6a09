"""Two machines without Slurm: the lines that are printed start the run, which is followed from its folder."""

from __future__ import annotations

import re
import subprocess
import threading

import pytest
from faults_plan import Faults
from launches import soon

from labkit import launch
from labkit.engine.errors import WorkerHung, WorkerRaised

pytestmark = pytest.mark.slow


@pytest.fixture
def hand(tmp_path, monkeypatch, elsewhere):
    """Settings of two machines, both of which are this one; their shells leave nothing in their TMPDIR."""
    settings = tmp_path / "cluster.toml"
    settings.write_text('interface = "lo"')
    monkeypatch.setenv("LABKIT_CLUSTER_FILE", str(settings))
    monkeypatch.setenv("LABKIT_CLUSTER", "hand")
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield
    assert not list(temporary.iterdir())


def pasted(capsys, plan: Faults) -> list:
    """Launch, paste the printed lines into two shells, and return what the launch gave or raised."""
    given, printed = [], ""

    def go():
        try:
            given.append(launch(plan, nodes=2))
        except Exception as error:
            given.append(error)

    thread = threading.Thread(target=go)
    thread.start()

    def lines():
        nonlocal printed
        printed += capsys.readouterr().out
        return re.findall(r"^cd .*$", printed, re.M) if printed.count("labkit.engine.enter") == 2 else None

    shells = [subprocess.Popen(["bash", "-c", line], stderr=subprocess.DEVNULL) for line in soon(lines)]
    thread.join(90)
    for shell in shells:
        shell.wait(60)
    return given


def test_the_printed_lines_measure_every_point(hand, capsys):
    (run,) = pasted(capsys, Faults(faults=("none", "none")))
    assert run.status["state"] == "finished" and run.status["processes_started"] == 4
    assert set(run.rows["node"]) == {0, 1} and set(run.rows["point"]) == {0, 1}


def test_a_worker_that_raises_on_the_other_machine_is_named(hand, capsys):
    (error,) = pasted(capsys, Faults(faults=("raise",), rank=3))
    assert isinstance(error, WorkerRaised) and (error.rank, error.node) == (3, 1)


def test_lines_that_nobody_pastes_are_told_at_the_time_limit(hand):
    with pytest.raises(WorkerHung, match=r"the run outlasted its time limit .*: rank 0 has not started"):
        launch(Faults(), nodes=2, limit_s=2.0)


def test_one_machine_needs_no_lines(hand, capsys):
    """Nor does a plan of one node, whatever number of nodes is asked for."""
    assert launch(Faults(), nodes=1).status["state"] == "finished"
    assert "Paste" not in capsys.readouterr().out
