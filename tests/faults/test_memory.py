"""One rank runs out of memory: a row, and fresh workers go on; and ranks that go wrong while they end."""

from __future__ import annotations

import time

import pytest
from failing_launches import failed, launch, nothing_left, place
from failing_plan import Failing

from labkit.engine.errors import WorkerRaised
from labkit.engine.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def finished(*faults: str, within_s: float = 60.0, **knobs) -> Run:
    """Return the run of points that end in order: before its patience of 180 s, leaving nothing behind."""
    begun = time.monotonic()
    run = launch(Failing(faults=faults, **knobs))
    assert time.monotonic() - begun < within_s
    assert run.status["state"] == "finished"
    nothing_left(run)
    return run


@pytest.mark.parametrize(("fault", "start_s"), [("oom while others wait", 2), ("oom while others are done", 0)])
def test_out_of_memory_on_one_rank(fault, start_s):
    """The sweep goes on with fresh workers, and the receipt counts what starting them has cost."""
    run = finished("none", fault, "none", gpus=3, before="slow" if start_s else "")
    rows = run.rows
    assert rows.loc[rows["status"] != "ok", ["point", "rank", "status"]].values.tolist() == [[1, 1, "out of memory"]]
    assert rows[rows["status"] == "ok"].groupby("point")["rank"].nunique().tolist() == [3, 3, 3]
    assert rows.groupby("rank")["pid"].nunique().tolist() == [2, 2, 2]
    assert (run.status["launches"], run.status["processes_started"]) == (2, 6)
    assert run.status["startup_seconds"] > 2 * start_s, "each start takes so long and more"
    assert "2: a point ended its workers; fresh ones took up the rest" in repr(run)


def test_out_of_memory_on_one_rank_while_another_raises():
    """Whoever made a mistake is named; the row of the other is kept."""
    error = failed(WorkerRaised, "none", "raise while others oom", "none", rank=0)
    assert error.sentence == (
        "rank 0 raised ValueError: this rank raises on purpose at point 1 (seed=0, fault=raise while others oom)"
    )
    assert place('on purpose")') + "raise_value_error" in error.detail
    rows = error.run.rows
    assert rows.loc[rows["status"] != "ok", ["point", "rank", "status"]].values.tolist() == [[1, 1, "out of memory"]]


@pytest.mark.parametrize("faults", [("raise at exit",), ("die at exit",), ("hang at exit", "a thread that stays")])
def test_ranks_that_go_wrong_while_they_end(faults):
    """All is measured by then: the run has finished, and what hangs is ended. The thread is another rank's."""
    run = finished("none", *faults)
    assert len(run.rows) == 2 * (1 + len(faults))
    assert run.status["measuring_seconds"] < 60, "ten on a machine that does nothing else; its patience is 180 s"
    if faults == ("raise at exit",):
        assert "raised while the process ends" in run.log(1)
