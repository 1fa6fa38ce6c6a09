"""The cards of eight made nodes together: what is odd among them, in the line, the table, CSV, JUnit and the status."""

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from loaded import from_elsewhere
from made_card import CALL, PAIR, card, reading

from labkit.card.cards import make_card
from labkit.card.fleet import (
    NODES,
    FleetNode,
    beside_each_other,
    fleet_csv,
    fleet_headline,
    fleet_junit,
    fleet_status,
    read_node,
)
from labkit.card.fleet_html import STYLE, fleet_html
from labkit.card.formats import write_card
from labkit.card.on_nodes import NoFleet, allocated_nodes
from labkit.node.faults import FAULT, Finding
from labkit.report.page import page_of
from labkit.repository import source_digest

XID = Finding("Xid 79 (<b>fallen</b>)", "GPU 3 (GPU-8f)", "2 times", FAULT)


def node(number, value=390.0, *, call: float | None = 50.0, gpus=8, **more):
    """Return a node whose pair and small call showed these figures; the pair alone has a reference."""
    readings = [reading(value=value), *([reading(CALL, call, limit=None)] if call else [])]
    return FleetNode(f"node{number}", card(*readings, gpus=gpus, **more))


def of_another_model(number):
    facts = card().node | {"model": "NVIDIA A100", "label": "8 × A100", "gpus": 8}
    made = make_card([reading(value=200.0, model="NVIDIA A100")], facts, "2026", recorded=lambda model: ([], []))
    return FleetNode(f"node{number}", made)


def row_of(nodes, name, key=PAIR):
    made = next(each.card for each in nodes if each.name == name)
    return next(row for row in made.rows if row.key == key)


EIGHT = beside_each_other(
    [
        *(node(1), node(2), node(3, 366.0), node(4, findings=[XID]), FleetNode("node5", why_not="<i>no venv</i>")),
        *(node(6), of_another_model(7), node(8, 391.0)),
    ]
)
WELL = beside_each_other([node(number) for number in range(3)])


def test_the_line_counts_sound_nodes_and_names_the_others():
    line = fleet_headline(EIGHT)
    assert line.startswith("Sound: 4 of 8 nodes. Look at: node3: GPU → GPU, slowest pair, below the reference by 6.2 %")
    assert "6.2 % worse than the other nodes; node4: GPU 3, Xid 79" in line
    assert "; node5: not measured: <i>no venv</i>. Not judged" in line and line.endswith(": node7")
    assert fleet_headline(WELL) == "Sound: 3 of 3 nodes"
    lost = [FleetNode(f"node{number}", why_not="gone") for number in range(10)]
    assert fleet_headline(lost).endswith("; node7: not measured: gone; and 2 more")


def test_a_disturbed_node_is_measured_again_and_is_no_peer():
    hot = reading(value=300.0, conditions={"throttled_percent": 50.0, "throttle_reasons": "temperature"})
    made = beside_each_other([node(1), FleetNode("node3", card(hot, reading(CALL, 50.0, limit=None), gpus=8))])
    assert fleet_headline(made) == "Sound: 1 of 2 nodes. Measure again, disturbed: node3"
    assert "measure again" in fleet_html(made) and fleet_status(made, "below") == 0


@pytest.mark.parametrize(
    ("values", "odd"),
    [((390, 360, 391), {1}), ((390, 380, 391), set()), ((360, 390), {0}), ((390, 340, 300, 391, 392), {1, 2})],
)
def test_a_node_that_is_5_percent_worse_than_the_others_is_odd_without_any_reference(values, odd):
    made = beside_each_other([node(number, value, recorded=()) for number, value in enumerate(values)])
    kinds = [row_of(made, each.name).kind for each in made]
    assert {number for number, kind in enumerate(kinds) if kind == "odd one out"} == odd
    assert set(kinds) <= {"odd one out", "alike"}


def test_hosts_differ_more_than_gpus():
    for slower, kind in ((95.0, "alike"), (105.0, "odd one out")):
        assert row_of(beside_each_other([node(1), node(2), node(3, call=slower)]), "node3", CALL).kind == kind


@pytest.mark.parametrize("more", [{"shared": True}, {"setting": "1 MiB"}, {"small": True}, {"model": "NVIDIA H100"}])
def test_what_was_measured_otherwise_is_no_peer(more):
    slow = FleetNode("node3", card(reading(value=300.0, **more), gpus=8, recorded=()))
    made = beside_each_other([node(1, recorded=()), node(2, recorded=()), slow])
    assert row_of(made, "node3").kind == "not comparable" and row_of(made, "node1").verdict == "alike: 2 nodes"


def test_a_figure_or_a_gpu_that_one_node_alone_lacks_is_looked_at():
    made = beside_each_other([node(1), node(2, call=None, why_not={"collectives": "NCCL hung"}), node(3, gpus=7)])
    line = fleet_headline(made)
    assert "node2: all-reduce, one small call, not measured: NCCL hung" in line
    assert "node3: GPUs, 7 visible, 8 on other nodes" in line
    assert [fleet_status([each], "below") for each in made] == [0, 3, 3]


def test_nodes_without_gpus_have_one_sentence_and_no_table():
    made = beside_each_other([FleetNode("n1", card(gpus=0)), FleetNode("n2", card(gpus=0))])
    assert fleet_headline(made) == "No GPU on n1, n2: a card compares GPUs, and has nothing to say of CPUs"
    lacks = [FleetNode("n1", card(reading(CALL, limit=None, model=""), gpus=0)), FleetNode("n2", card(gpus=0))]
    assert "Look at" not in fleet_headline(beside_each_other(lacks))
    assert "<table" not in fleet_html(made) and 'href="nodes/n2/index.html"' in fleet_html(made)


def test_the_table_has_all_nodes_marks_the_odd_ones_and_shows_no_markup_of_others():
    shown = page_of(fleet_html(EIGHT), STYLE)
    rows = [row.partition("</tr>")[0] for row in shown.split("<tr>")[2:]]
    assert [f"node{number}</" in row for number, row in enumerate(rows, 1)] == [True] * 8
    assert [("failed" in row) for row in rows] == [False, False, True, True, True, False, False, False]
    assert "▼ 366" in rows[2] and "Xid 79" in rows[3] and "no venv" in rows[4] and "200" in rows[6]
    assert "<i>" not in shown and "<b>" not in shown and not from_elsewhere(shown)


def test_csv_and_junit_have_all_nodes():
    lines = list(csv.DictReader(io.StringIO(fleet_csv(EIGHT))))
    assert list(dict.fromkeys(line["node"] for line in lines)) == [each.name for each in EIGHT]
    assert [line["verdict"] for line in lines if line["node"] == "node5"] == ["not measured: <i>no venv</i>"]
    suites = {suite.get("name"): suite for suite in ElementTree.fromstring(fleet_junit(EIGHT))}
    assert len(suites) == 8 and all(int(suite.get("tests")) == len(suite) for suite in suites.values())
    assert {name for name, suite in suites.items() if suite.get("failures") != "0"} == {"node3", "node4"}
    assert [name for name, suite in suites.items() if suite.find("testcase/error") is not None] == ["node5"]


def test_each_node_can_fail_a_level(capsys):
    assert [fleet_status(EIGHT, wanted) for wanted in (None, "impossible", "below")] == [0, 0, 3]
    said = capsys.readouterr().err
    assert all(f"node{number}: fails on below" in said for number in (3, 4, 5)) and "node1" not in said
    assert fleet_status([EIGHT[4]], "below=50") == 3 and fleet_status(WELL, "below") == 0


def test_a_node_without_a_card_says_why(tmp_path):
    made = node(1).card
    for name, stored in (("new", made.node | {"code": source_digest()}), ("old", made.node | {"code": "other"})):
        (tmp_path / NODES / name).mkdir(parents=True)
        write_card(replace(made, node=stored), tmp_path / NODES / name)
    assert read_node("new", tmp_path, "it was killed").card is not None
    assert "another version of the workbook" in read_node("old", tmp_path).why_not
    assert read_node("gone", tmp_path, "it was killed").why_not == "it was killed"
    assert read_node("gone", tmp_path).why_not == "it left no card"
    (tmp_path / NODES / "new" / "card.json").write_text("{")
    assert "is no card" in read_node("new", tmp_path).why_not
    empty = card(gpus=8, problems=["topology was not measured: NCCL hung"])
    write_card(replace(empty, node=empty.node | {"code": source_digest()}), tmp_path / NODES / "new")
    assert read_node("new", tmp_path).why_not == "topology was not measured: NCCL hung"


def test_outside_an_allocation_the_line_to_type_is_said(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(NoFleet, match=r'salloc --nodes=8 --exclusive --gpus-per-node=8 make card ARGS="--nodes 8"'):
        allocated_nodes(8)
