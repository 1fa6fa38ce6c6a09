"""Every page is whole where points of its runs are missing: it shows what there is, and says what is not measured."""

import re

import nbformat
import pandas as pd
import pytest
from IPython.display import Markdown
from runs_with_gaps import KEPT, RunWithGaps

from labkit import gaps, replay
from labkit.batch.execute import execute
from labkit.provenance import of_run
from labkit.report.record import OK
from labkit.repository import REPOSITORY, chosen_notebooks
from lessons import precision_memory

LOST = "8 of 8 points missing: 8 × out of memory"
INSTALLS = f"""
import sys
sys.path.insert(0, {str(REPOSITORY / "tests")!r})
import runs_with_gaps
runs_with_gaps.install({{gaps!r}})
"""


@pytest.fixture
def recorded():
    """Return a recorded run, which is whole, and the same one without any point."""
    whole = replay(precision_memory.RECORDED["memory"])
    lost = RunWithGaps(whole.folder)
    lost.kept = KEPT["no point"]
    return lost, whole


def answering(function):
    """Return the function as a lesson's door offers it."""
    door = {"function": function}
    gaps.stand_in(door)
    return door["function"]


def test_a_function_that_fails_on_a_run_without_points_shows_the_recorded_one(recorded, monkeypatch):
    shown = []
    monkeypatch.setattr(gaps, "display", shown.append)
    peaks = answering(lambda here, there: Markdown(f"{here.rows['peak_mib'].max():.0f}"))
    lost, whole = recorded
    assert peaks(lost, whole).data == peaks(whole, whole).data
    assert [told.data for told in shown] == [f"Not measured here ({LOST}): the recorded run stands in."]
    assert answering(lambda run: run.rows["peak_mib"].max())(lost).gaps == LOST
    assert float(answering(lambda run: run.rows["peak_mib"])(lost)["a"].max()) != 0, "nothing can be made of it"


def test_a_fault_of_a_whole_run_is_raised(recorded):
    _, whole = recorded
    with pytest.raises(KeyError):
        answering(lambda run: run.rows["no such column"])(whole)


@pytest.mark.parametrize("said", ["It takes nan s.", "It takes -inf s.", "NaN of 3"])
def test_a_sentence_without_its_number_is_not_said(recorded, said):
    lost, whole = recorded
    say = answering(lambda here, there: Markdown(said if here is lost else "It takes 3 s of Nancy's."))
    assert say(lost, whole).data == "It takes 3 s of Nancy's."


def test_a_table_tells_what_its_run_lacks(recorded):
    lost, whole = recorded
    assert gaps.gaps_of({"here": [(of_run(pd.DataFrame({"a": [1]}), lost), 3)]}) == LOST
    assert gaps.gaps_of([lost.rows, whole]) == LOST
    assert gaps.gaps_of([whole.rows, whole, 3, None]) == ""
    assert lost.source.endswith(LOST)


@pytest.mark.slow
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("path", chosen_notebooks(), ids=lambda path: path.stem)
def test_a_page_is_whole_where_points_are_missing(path, kept, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "answers"))
    page = nbformat.read(path, as_version=4)
    page.cells.insert(0, nbformat.v4.new_code_cell(INSTALLS.format(gaps=kept)))
    nbformat.write(page, tmp_path / path.name)
    outcome = execute(tmp_path / path.name, tmp_path / "executed.ipynb", {"size": "recorded"}, {"disable": True})
    assert outcome.status == OK, outcome.why
    outputs = [out for cell in nbformat.read(tmp_path / "executed.ipynb", 4).cells for out in cell.get("outputs", [])]
    warned = [output.text for output in outputs if output.get("name") == "stderr"]
    sentences = [output.get("data", {}).get("text/markdown", "") for output in outputs]
    assert not warned
    assert not [said for said in sentences if re.search(r"(?<!\w)(nan|inf)(?!\w)", re.sub(r"`[^`]*`", "", said))]
