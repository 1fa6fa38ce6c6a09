"""`make card ARGS="--nodes 2"` over two real slurmd: both cards come back, and nothing is left after an interrupt."""

import os
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import psutil
import pytest
from launches import soon
from two_nodes import SLURM_FORGETS_S

from labkit.card.cards import Card

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(cluster, tmp_path):
    """Return a function that starts the command in an allocation of two nodes; what it writes lies in tmp_path."""
    number = cluster.allocate(2)
    job = {"SLURM_JOB_ID": number, "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "7"}
    settings = {"LABKIT_RUNS": str(tmp_path), "LABKIT_PROGRESS": "0", "LABKIT_LOCKS": str(tmp_path)}

    def start(*arguments, **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, "-m", "labkit.card", *arguments]
        return subprocess.Popen(command, env=os.environ | cluster.variables | job | settings | more, **pipes)

    yield start
    soon(lambda: not cluster.steps(), seconds=SLURM_FORGETS_S)
    cluster.release_all()


def processes_in(folder):
    """Return the processes that carry this folder in their environment, without this one's own."""
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] if process.environ().get("LABKIT_LOCKS") == str(folder) else []
        except psutil.Error:
            continue
    return found


def test_both_nodes_measure_their_cards_and_one_page_names_both(fleet, tmp_path):
    process = fleet("--nodes", "2", "--wait", "topology")  # one machine is both nodes: one waits for the other
    printed, _ = process.communicate(timeout=250)
    assert process.returncode == 0, printed
    assert all(f"{name}: [1/1] topology: ok" in printed for name in ("n1", "n2"))
    assert "No GPU on n1, n2: a card compares GPUs" in printed
    report = tmp_path / "report"
    for name in ("n1", "n2"):
        made = Card.load(report / "nodes" / name / "card.json")
        assert made.node["host"] == name and any(row.measured for row in made.rows)
        assert (report / "nodes" / name / "index.html").exists()
    shown = (report / "index.html").read_text()
    assert "No GPU on n1, n2" in shown and "<table" not in shown
    assert [suite.get("name") for suite in ElementTree.fromstring((report / "card.xml").read_text())] == ["n1", "n2"]
    assert {line.partition(",")[0] for line in (report / "card.csv").read_text().splitlines()[1:]} == {"n1", "n2"}


def test_a_node_that_fails_is_named_with_its_sentence_and_the_other_is_shown(fleet, tmp_path):
    process = fleet("--nodes", "2", "--fail-on", "below", "topology")  # both share one machine's lock: one is refused
    printed, _ = process.communicate(timeout=250)
    assert process.returncode == 3, printed
    cards = list((tmp_path / "report" / "nodes").glob("*/card.json"))
    assert len(cards) == 1
    reason = "holds this node for an unattended run"
    assert reason in (tmp_path / "report" / "card.csv").read_text() and "(Exited with exit code 2)" in printed


def test_an_interrupt_ends_all_nodes_and_writes_what_there_is(fleet, tmp_path):
    process = fleet("--nodes", "2", "--wait")
    soon(lambda: list(tmp_path.glob("report/nodes/*/runs/*/plan.json")), seconds=60)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=100)
    assert process.returncode == 130, printed
    (file,) = tmp_path.glob("report/nodes/*/card.json")  # of the node that measured; the other one waited
    assert "not measured: interrupted" in {row.verdict for row in Card.load(file).rows}
    assert "not measured: interrupted" in (tmp_path / "report" / "card.csv").read_text()
    soon(lambda: not processes_in(tmp_path), seconds=10)


@pytest.mark.parametrize(
    ("job", "says"),
    [("", 'salloc --nodes=3 --exclusive --gpus-per-node=8 make card ARGS="--nodes 3"'), ("7", "has 2 of 3")],
)
def test_without_the_nodes_one_sentence_says_what_to_type(fleet, job, says):
    process = fleet("--nodes", "3", SLURM_JOB_ID=job)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and says in printed and len(printed.splitlines()) == 1, printed
