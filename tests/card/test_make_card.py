"""`make card` with real launches on this machine: the card, its exit status, and launches that fail."""

import json
import os

import pytest

from labkit.card import measure
from labkit.card.__main__ import main
from labkit.card.cards import Card
from labkit.engine.errors import NotEnoughGpus
from labkit.engine.session import AgentSession

pytestmark = pytest.mark.slow


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Return where the card goes; runs of the test are its own."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")
    return tmp_path / "runs" / "report"


@pytest.mark.quick
def test_a_card_of_one_lab_is_measured_and_kept_by_date(report, capsys):
    for _ in range(2):
        assert main(["--report", str(report), "topology"]) == 0
    printed = capsys.readouterr().out
    assert "[1/1] topology: ok" in printed and "GPU → GPU, slowest pair" in printed
    card = Card.load(report / "card.json")
    (measured,) = (row for row in card.rows if row.measured)
    assert measured.figure == "GPU → GPU, slowest pair" and measured.value > 0 and measured.repeats == 5
    assert (report / "card.xml").exists() and (report / "card.csv").exists()
    assert "slowest pair" in (report / "index.html").read_text() and (report / "trends.html").exists()
    (kept,) = report.with_name("reports").iterdir()
    assert Card.load(kept / "card.json").rows != card.rows
    assert main(["--report", str(report), "--fail-on", "below", "topology"]) == 0  # nothing is below: no reference


def test_launches_that_fail_are_one_sentence_each_and_cost_no_other(report, monkeypatch, capsys):
    launched = measure.launch

    def launch(plan, **more):
        if plan.lab == "collectives":
            raise NotEnoughGpus("the plan wants 4 GPU(s), this node shows 3")
        return launched(plan, **more)

    monkeypatch.setattr(measure, "launch", launch)
    assert main(["--report", str(report), "topology", "collectives"]) == 0
    card = Card.load(report / "card.json")
    verdicts = {row.verdict for row in card.rows if row.lab == "collectives"}
    assert verdicts == {"not measured: the plan wants 4 GPU(s), this node shows 3"}
    assert any(row.measured for row in card.rows if row.lab == "topology")
    assert "collectives was not measured: the plan wants 4 GPU(s), this node shows 3" in card.problems
    assert any("no GPU is visible here" in one for one in card.problems) == (not card.node["gpus"])


def test_the_launches_of_several_labs_share_one_agent(report, monkeypatch):
    monkeypatch.setattr(AgentSession, "_current", None)  # that of earlier tests may know these labs' workers
    launched, agents = measure.launch, []

    def launch(plan, **more):
        run = launched(plan, **more)
        agents.append(AgentSession._current.process.pid)
        return run

    monkeypatch.setattr(measure, "launch", launch)
    try:
        assert main(["--report", str(report), "topology", "broadcast"]) == 0
    finally:
        AgentSession._current.leave()
    assert len(agents) == 2 and len({*agents}) == 1
    assert all(row.measured for row in Card.load(report / "card.json").rows if row.lab == "topology")


def test_an_interrupt_ends_the_rest_and_leaves_a_card(report, monkeypatch):
    def launch(plan, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "launch", launch)
    assert main(["--report", str(report), "topology", "collectives"]) == 130
    card_record = json.loads((report / "card.json").read_text())
    assert {row["verdict"] for row in card_record["rows"] if row["lab"] == "collectives"} == {
        "not measured: interrupted"
    }


@pytest.mark.quick
def test_wrong_calls_say_what_there_is(report, capsys):
    for arguments, says in ((["gravity"], "topology"), (["--fail-on", "slow"], "below=5")):
        with pytest.raises(SystemExit) as stop:
            main(["--report", str(report), *arguments])
        assert stop.value.code == 2 and says in capsys.readouterr().err


def test_a_notebooks_runs_are_found_again_and_give_the_reports_card(tmp_path, write_notebook, monkeypatch):
    from labkit.batch import sources
    from labkit.batch.__main__ import main as run

    monkeypatch.setattr(sources, "labs_with_claims", list)
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    launches = "from labkit import launch\nfrom lessons import topology\nlaunch(topology.Copies.small(gpus=2))"
    write_notebook(tmp_path / "notebooks" / "00_copies.ipynb", "# Copies", launches)
    report = tmp_path / "runs" / "report"
    assert run(["--notebooks-folder", str(tmp_path / "notebooks"), "--report", str(report)]) == 0
    (row,) = (row for row in Card.load(report / "card.json").rows if row.measured)
    assert (row.lab, row.setting) == ("topology", "16 MiB, CPU processes")
    assert row.setting in (report / "card.html").read_text()
    assert "LABKIT_LAUNCHED_FOR" not in os.environ
