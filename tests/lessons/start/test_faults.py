"""The failures that lab 00 causes on purpose: each comes back with the right class and rank, and leaves nothing."""

import pytest

from labkit.engine.errors import PlanError
from labkit.engine.recordings import replay
from labkit.repository import REPOSITORY
from lessons import start
from lessons.start import faults

pytestmark = pytest.mark.slow


def test_each_kind_comes_back_as_it_should(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")
    errors = [start.cause(kind, size="small") for kind in ("raises", "killed", "leaves", "hangs")]
    table = start.failures(errors)
    assert table["error"].tolist() == ["WorkerRaised", "WorkerDied", "WorkerDied", "WorkerHung"]
    assert table["blamed_rank"].tolist() == table["failed_rank"].tolist() == [1, 1, 1, 1]
    assert (table["rows_kept"] >= 4).all()
    assert (table["processes_left"] == 0).all()
    assert (table["seconds"] < 30).all()
    assert "SIGKILL" in errors[1].sentence
    assert "rank 0 waits in barrier" in errors[3].sentence


def test_an_unknown_kind_lists_the_known():
    with pytest.raises(PlanError, match="raises, killed, leaves, hangs"):
        start.cause("explodes", size="small")


def test_a_recorded_failure_is_told_as_it_was():
    errors = [start.cause(kind, size="recorded") for kind in ("raises", "killed", "leaves", "hangs")]
    table = start.failures(errors)
    assert list(table["error"]) == ["WorkerRaised", "WorkerDied", "WorkerDied", "WorkerHung"]
    assert (table["blamed_rank"] == 1).all() and (table["processes_left"] == 0).all()
    assert (table["seconds"] > 0).all() and (table["rows_kept"] > 0).all()
    shown = start.show_error(errors[0]).data
    assert "ValueError: this rank fails on purpose" in shown
    assert not any(path in shown for path in ("/work/", "/root/", "/tmp/", str(REPOSITORY)))


def test_an_error_that_is_kept_comes_back_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.engine.run.RECORDED", tmp_path)
    monkeypatch.setattr("labkit.engine.recordings.RECORDED", tmp_path)
    error = start.cause("raises", size="small")
    faults.keep(error, "here/raises")
    again = faults.recorded_error(replay("here/raises"))
    assert (type(again), again.rank, again.point, again.seconds) == (type(error), 1, 1, error.seconds)
    assert again.sentence == error.sentence and len(again.run.rows) == len(error.run.rows)
