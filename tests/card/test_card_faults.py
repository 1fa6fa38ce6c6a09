"""What driver and kernel know on the card: named first, in every form, and kept in the record."""

import json
from xml.etree import ElementTree

from loaded import from_elsewhere
from made_card import card, reading

from labkit.card import publish
from labkit.card.card_html import card_html
from labkit.card.cards import Card, headline
from labkit.card.formats import to_junit, to_text
from labkit.card.options import status_of
from labkit.node.faults import FAULT, NOT_READABLE, REMARK, Finding
from labkit.report.record import Record

FALLEN = Finding("Xid 79 (fallen off the bus)", "GPU 3 (GPU-<b>8f</b>)", "2 times since boot", FAULT)
REPLAYS = Finding("PCIe replays:", "GPU 0 (GPU-aa)", "4000", REMARK)
LOG = Finding("kernel log", "this node", "this user may not read it", NOT_READABLE)
SICK = card(reading(), findings=[FALLEN, REPLAYS, LOG])
WELL = card(reading(), findings=[REPLAYS, LOG])


def test_the_headline_names_faults_first():
    assert headline(SICK).startswith("Look at: GPU 3, Xid 79 (fallen off the bus) 2 times since boot. 1 of 1 figures")
    assert headline(WELL).startswith("Sound: ")
    both = headline(card(reading(value=360.0), findings=[FALLEN]))
    assert "2 times since boot; GPU → GPU, slowest pair, below" in both
    lost = card(gpus=0, findings=[FALLEN])
    assert headline(lost) == "Look at: GPU 3, Xid 79 (fallen off the bus) 2 times since boot"


def test_the_card_keeps_findings_and_older_cards_have_none(tmp_path):
    assert Card.from_json(SICK.to_json()).findings == (FALLEN, REPLAYS, LOG)
    older = json.loads(WELL.to_json())
    del older["findings"]
    assert Card.from_json(json.dumps(older)).findings == ()


def test_the_page_shows_faults_above_what_is_sound_and_folds_the_rest():
    sick, well = card_html(SICK), card_html(WELL)
    assert sick.index("<h3>What the driver knows</h3>") < sick.index("<h3>Sound</h3>")
    assert "<h3>What the driver knows" not in well
    folded = "<summary>What the driver knows: no fault, 1 remark; not readable: kernel log</summary>"
    assert folded in well and "PCIe replays: 4000 (remark)" in well and "may not read it (not readable)" in well
    assert "<b>8f" not in sick and "GPU-&lt;b&gt;8f" in sick
    assert not from_elsewhere(sick)


def test_each_fault_is_a_failed_test_of_the_driver():
    suite = ElementTree.fromstring(to_junit(SICK))
    (case,) = suite.findall("testcase[@classname='driver']")
    assert case.get("name") == "GPU 3 (GPU-<b>8f</b>): Xid 79 (fallen off the bus)"
    assert [failure.get("message") for failure in case] == ["2 times since boot"]
    assert int(suite.get("failures")) == 1 and int(suite.get("tests")) == len(suite)
    assert int(ElementTree.fromstring(to_junit(WELL)).get("failures")) == 0


def test_the_terminal_shows_faults_and_what_may_not_be_read():
    assert "driver: GPU 3 (GPU-<b>8f</b>): Xid 79 (fallen off the bus) 2 times since boot" in to_text(SICK)
    assert "driver and kernel: no fault, 1 remark; not readable: kernel log" in to_text(WELL)
    assert "driver" not in to_text(card(reading()))


def test_a_fault_fails_below_and_a_remark_nothing(capsys):
    assert [status_of(SICK, level) for level in (None, "impossible", "below", "below=5")] == [0, 0, 3, 3]
    assert "fails on below: GPU 3, Xid 79" in capsys.readouterr().err
    assert status_of(WELL, "below") == 0


def test_findings_are_in_the_record_and_are_not_read_again_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "findings", lambda node: (FALLEN, LOG))
    Record(node=publish.facts_here()).save(tmp_path / "record.json")
    monkeypatch.setattr(publish, "findings", lambda node: 1 / 0)
    made = publish.card_of(Record.load(tmp_path / "record.json"))
    assert made.findings == (FALLEN, LOG) and "findings" not in made.node
    assert publish.card_of(Record()).findings == (), "an older record has none"
