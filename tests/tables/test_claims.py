"""Claims: two figures and a rule become a row, a verdict and a reason that a reader sees."""

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from labkit.claims import claims, claims_of, labs_with_claims
from labkit.repository import LESSONS, PUBLISHED
from labkit.story.claims import claims_text
from labkit.tables.claims import Figures, claims_table, read_claims, undecided, within
from labkit.tables.published import published, report_names

MOST_WORDS = 25  # of a reason
# Published tables whose rows hold what a report's text says, beside those named *_statements.
TEXTS = {"communication_accounting", "horovod_scaling", "topology_claims", "transformer_memory"}
OF_A_TEXT = re.compile(r"text|answer|advice|Q\d")


def test_every_report_of_a_published_table_has_a_name():
    tables = [file.stem for file in PUBLISHED.glob("*.csv") if file.stem != "reports"]
    for name in tables:
        table = published(name)
        assert set(table["report"]) <= set(report_names())
        assert all(report_names()[report] in table.attrs["source"] for report in set(table["report"]))


@pytest.fixture(scope="module")
def every_claim():
    return pd.concat([claims_of(lab).assign(lab=lab) for lab in labs_with_claims()])


def test_every_claim_is_complete(every_claim):
    assert {*every_claim["lab"]} == {*labs_with_claims()}
    assert not every_claim.duplicated(["lab", "claim"]).any()
    assert not every_claim.duplicated(["report", "where", "says"]).any(), "no claim is counted twice"
    assert every_claim["says"].str.len().gt(10).all() and every_claim["reason"].str.len().gt(20).all()
    assert {type(verdict) for verdict in every_claim["holds"]} <= {bool, type(None)}


@pytest.mark.parametrize("lab", labs_with_claims())
def test_what_a_report_says_has_a_row_in_published(lab, monkeypatch):
    """Its figure is read from a published table; that of a text from one of the tables that hold what texts say."""
    read, read_csv = [], pd.read_csv

    def noted(file, *args, **named):
        read.append(Path(file))
        return read_csv(file, *args, **named)

    monkeypatch.setattr(pd, "read_csv", noted)
    rows = read_claims(LESSONS / lab / "claims.csv").set_index("claim")
    for name, figures in import_module(f"lessons.{lab}.claims").FIGURES.items():
        read.clear()
        printed = figures.printed()
        tables = {file.stem for file in read if file.parent == PUBLISHED}
        assert tables or printed is None, f"{name}: {printed!r} stands in claims.py and in no published table"
        if OF_A_TEXT.search(rows.loc[name, "where"]):
            texts = {table for table in tables if table.endswith("_statements")} | (tables & TEXTS)
            assert texts, f"{name} quotes a text, and reads {', '.join(sorted(tables))} only"


def test_what_does_not_hold_was_printed(every_claim):
    refuted = every_claim[[verdict is False for verdict in every_claim["holds"]]]
    without = refuted["printed"].map(lambda figure: figure is None or str(figure).startswith("no ") or figure == "")
    assert refuted.loc[without, ["lab", "claim"]].to_numpy().tolist() == []


def test_a_lab_without_claims_is_refused():
    from lessons import start

    if "start" not in labs_with_claims():
        with pytest.raises(ValueError, match="has no claims"):
            claims(start)


PATH = {
    "claim": "path",
    "report": "hpml4",
    "where": "table 2",
    "says": "the path gains",
    "unit": "×",
    "digits": 3,
    "recomputes": "",
    "reason": "The memory changed, too.",
    "chosen": True,
}
GAIN = Figures(lambda: 3.9, lambda: 1.4, within(1.25))


@pytest.mark.parametrize(("recomputed", "holds"), [(1.4, False), (3.2, True), (4.8, True), (5.0, False)])
def test_a_stated_claim_holds_within_its_factor(recomputed, holds):
    row = claims_table(pd.DataFrame([PATH]), {"path": replace(GAIN, recomputed=lambda: recomputed)}).iloc[0]
    assert row["holds"] is holds
    assert (row["claim"], row["printed"], row["recomputed"], row["where"]) == ("path", 3.9, recomputed, "table 2")


def test_a_stated_claim_may_stay_open():
    open_figures = {"path": Figures(lambda: "no size", lambda: "1 to 6 GiB", undecided)}
    assert claims_table(pd.DataFrame([PATH]), open_figures).iloc[0]["holds"] is None


@pytest.mark.parametrize(("printed", "shown"), [("4, 8", "| 4, 8 × |"), ("no figure", "| no figure |")])
def test_a_list_of_figures_has_its_unit_and_words_have_none(printed, shown):
    figures = replace(GAIN, printed=lambda: printed, holds=undecided)
    assert shown in claims_text(claims_table(pd.DataFrame([PATH]), {"path": figures})).data


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_a_dash(nothing):
    figures = replace(GAIN, recomputed=lambda: nothing, holds=undecided)
    assert "| – |" in claims_text(claims_table(pd.DataFrame([PATH]), {"path": figures})).data


def test_what_is_not_chosen_is_folded_below():
    other = PATH | {"claim": "other", "says": "it is fast", "chosen": False}
    text = claims_text(claims_table(pd.DataFrame([PATH, other]), {"path": GAIN, "other": GAIN})).data
    shown, opened = text.split("<details><summary>The other claims: 1</summary>")
    assert "the path gains" in shown and ", table 2 |" in shown and "The memory changed, too." in shown
    assert "**Claims: 2. ✘ does not hold: 2.**" in shown and "it is fast" not in shown
    assert "it is fast" in opened and "the path gains" not in opened


def test_every_reason_is_short():
    claims = pd.concat([read_claims(LESSONS / lab / "claims.csv") for lab in labs_with_claims()])
    assert claims.loc[claims["reason"].str.split().str.len() > MOST_WORDS, "claim"].tolist() == []


@pytest.mark.parametrize("lab", labs_with_claims())
def test_no_figures_are_left_without_a_claim(lab):
    figures = import_module(f"lessons.{lab}.claims").FIGURES
    assert [*figures] == read_claims(LESSONS / lab / "claims.csv")["claim"].tolist()
