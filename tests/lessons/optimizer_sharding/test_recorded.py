"""The recorded runs of lab 11: the ledger explains the peaks, and ours is right, even and what it says it is."""

import pytest

from labkit.engine.recordings import replay
from labkit.repository import NOTEBOOKS
from lessons import optimizer_sharding
from lessons.optimizer_sharding.plan import CASES

NOTEBOOK = NOTEBOOKS / "11_optimizer_sharding.ipynb"


@pytest.fixture(scope="module")
def runs():
    """Every recorded run; a folder that is missing fails here."""
    return {name: replay(path) for name, path in optimizer_sharding.RECORDED.items()}


def test_what_was_recorded(runs):
    for run in runs.values():
        assert (run.plan.device, run.plan.size, run.plan.gpus >= 2) == ("cuda", "full", True)
        assert (run.rows["status"] == "ok").all()
        assert set(run.rows["point"]) == {point.point for point in run.plan.points()}
        assert set(run.rows["rank"]) == set(range(run.plan.gpus))
    for name in ("memory", "steps"):
        assert (runs[name].plan.hidden, runs[name].plan.layers) == (1600, 48)


def test_the_ledger_explains_every_peak(runs):
    table = optimizer_sharding.memory(runs["memory"])
    assert table["peak"].notna().all()
    worst = table.loc[table["unexplained_share"].abs().idxmax()]
    assert abs(worst["unexplained_share"]) < 0.1, worst.to_dict()
    assert (table["counted_error"] < 0.01).all()
    assert optimizer_sharding.sent(runs["memory"])["equal"].all()
    assert abs(optimizer_sharding.owned(runs["memory"]).set_index("way").loc["sharded", "excess"]) < 0.05


def test_every_case_is_right(runs):
    table = optimizer_sharding.equality(runs["equality"])
    assert set(table["case"]) == set(CASES)
    assert table["equal"].all(), table[~table["equal"]]


def test_no_time_beats_physics(runs):
    table = optimizer_sharding.steps(runs["steps"])
    assert (table["local_ms"] > 0.98 * table["least_local_ms"]).all(), table
    assert (table["update_ms"] > 0.98 * table["least_sent_ms"]).all(), table


def test_the_text_says_what_an_unsharded_update_takes(runs):
    table = optimizer_sharding.steps(runs["steps"]).set_index(["optimizer", "kernel", "way"])
    assert f"{table.loc[('adamw', 'foreach', 'unsharded'), 'update_ms']:.1f} ms" in NOTEBOOK.read_text(encoding="utf-8")
