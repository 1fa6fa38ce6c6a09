"""The card as JSON, CSV, JUnit XML and HTML: each tells the same, and damaged or foreign ones end in one sentence."""

import csv
import io
import json
import math
import re
from xml.etree import ElementTree

import pytest
from loaded import from_elsewhere
from made_card import card, reading, row

from labkit.card.card_html import STYLE, card_html
from labkit.card.cards import Card, CardError
from labkit.card.formats import measured_text, to_csv, to_junit, to_text, write_card
from labkit.report.page import page_of


def test_a_card_is_the_same_after_it_was_written_and_read(tmp_path):
    made = card(reading(value=360.0), problems=["one problem"])
    write_card(made, tmp_path)
    assert Card.load(tmp_path / "card.json").to_json() == made.to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.csv", "card.json", "card.xml"]


def test_a_figure_that_no_number_can_hold_is_no_number_in_json():
    made = card(reading(value=math.inf, spread=0.0))
    assert not row(Card.from_json(made.to_json())).measured
    assert row(made).kind == "impossible"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no card"),
        ("[1, 2]", "is no card"),
        ('{"version": 1}', "is no card"),
        ('{"version": 7, "date": ""}', "is a card of version 7, and this workbook reads 1"),
    ],
)
def test_a_card_that_cannot_be_read_is_one_sentence(tmp_path, text, says):
    file = tmp_path / "card.json"
    file.write_text(text)
    with pytest.raises(CardError) as error:
        Card.load(file)
    assert says in str(error.value) and "make card" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("change", [{"value": "fast"}, {"colour": "red"}])
def test_a_card_with_a_damaged_row_is_no_card(change):
    card_record = json.loads(card(reading()).to_json())
    card_record["rows"][0] |= change
    with pytest.raises(CardError):
        Card.from_json(json.dumps(card_record))


def test_csv_has_a_line_per_figure():
    lines = list(csv.DictReader(io.StringIO(to_csv(card(reading(value=360.0))))))
    (line,) = (one for one in lines if one["value"])
    assert (line["kind"], line["value"], line["reference"], line["limit"]) == ("below", "360.0", "390.0", "478.1")
    assert float(line["worse_by_percent"]) == pytest.approx(7.69, abs=0.01)


@pytest.mark.parametrize(("value", "failures"), [(390.0, 0), (360.0, 1), (900.0, 1)])
def test_junit_fails_what_is_below_or_impossible_and_skips_what_is_not_measured(value, failures):
    made = card(reading(value=value))
    suite = ElementTree.fromstring(to_junit(made))
    assert int(suite.get("tests")) == len(suite) == len(made.rows)
    assert suite.get("hostname") == made.node["host"]
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) == failures
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped")) == len(made.rows) - 1


def test_the_terminal_shows_figure_reference_and_verdict():
    made = card(reading(value=360.0))
    assert measured_text(row(made)) == "360 GB/s (reference 390 GB/s)"
    (line,) = (line for line in to_text(made).splitlines() if "360" in line)
    assert line.endswith("below the reference by 7.7 %")


def test_a_bar_reaches_its_share_of_the_limit_and_carries_the_references_tick():
    shown = card_html(card(reading(value=239.05)))
    assert 'class="fill failed" style="width:50.00%"' in shown
    (tick,) = re.findall(r'class="tick" style="left:([\d.]+)%" title="([^"]*)"', shown)
    assert float(tick[0]) == pytest.approx(100 * 390 / 478.1, abs=0.01) and "h200x4/topology/copies" in tick[1]
    assert "reference 390" in shown and "50 % of the limit 478" in shown


def test_a_figure_beyond_its_limit_ends_beyond_the_limits_mark():
    shown = (
        card_html(card(reading(value=900.0))).partition("<table")[2].partition('<ul class="key"')[0]
    )  # without the key
    (fill,) = re.findall(r'class="fill failed" style="width:([\d.]+)%"', shown)
    (edge,) = re.findall(r'class="edge" style="left:([\d.]+)%"', shown)
    assert float(edge) < float(fill) <= 100


def test_the_page_needs_nothing_else_and_shows_no_markup_of_others():
    shown = page_of(card_html(card(reading(setting="<b>"), problems=["<script>alert(1)</script>"])), STYLE)
    assert from_elsewhere(shown) == [] and "<script>" not in shown and "<b>" not in shown
