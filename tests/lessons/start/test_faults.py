"""The failures that lab 00 causes on purpose: each comes back with the right class and rank, and leaves nothing."""

import pytest

from labkit.engine.errors import PlanError
from lessons import start

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
