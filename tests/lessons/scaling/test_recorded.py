"""The recorded runs of lab 13: whole, their messages and gradients the formulas', the targets' verdicts as they are."""

import pytest

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from labkit.theory.traffic import bucket_count
from lessons import collectives, scaling
from lessons.scaling.theory import model


@pytest.fixture(scope="module")
def runs():
    """Every recorded run; a folder that is missing fails here."""
    return {name: replay(path) for name, path in scaling.RECORDED.items()}


def test_what_was_recorded(runs):
    assert set(runs) == {"epochs", "communication", "messages", "accuracy", "trial", "suspects"}
    for run in runs.values():
        assert (run.plan.device, run.plan.size, run.plan.images) == ("cuda", "full", "glyphs")
        assert (run.plan.width, run.plan.gpus) == (64, 2)
        assert (run.rows["status"] == "ok").all()
        assert set(run.rows["point"]) == {point.point for point in run.plan.points()}


def test_gradients_are_the_formulas(runs):
    table = scaling.exchange(runs["communication"])
    assert (table["sent_bytes"] == 4 * 11_173_962).all()
    assert (table["calls"] == bucket_count(model().shapes)).all()
    assert (table["hidden_share"] <= 1).all()


def test_no_all_reduce_is_faster_than_the_same_links_allow(runs):
    """Lab 09's line is of H200s, whose links are the H100's."""
    lines = collectives.fits(replay(collectives.RECORDED.nearest("sweep", gpus=2)))
    table = scaling.beside_line(scaling.exchange(runs["communication"]), lines)
    assert (table["over_line"] > 0.9).all(), table


def test_messages_besides_gradients(runs):
    table = scaling.messages(runs["messages"]).set_index(["phase", "collective"])
    assert table.loc[("third step", "broadcast"), "sent_bytes"] == model().buffers_bytes
    assert table.loc[("third step", "all-reduce"), "calls"] == bucket_count(model().shapes)
    assert ("a step under no_sync", "all-reduce") not in table.index


def test_goals_are_met_as_recorded(runs):
    met = {figure: met for run in runs.values() for figure, met in scorecard_of(run).set_index("figure")["met"].items()}
    assert len(met) == 4
    assert {target for target, reached in met.items() if not reached} == MISSED


def test_epochs(runs):
    """The parts make the epoch; two GPUs halve a rank's steps."""
    table = scaling.parts(runs["epochs"]).set_index(["loader", "ranks", "gpu_batch"])
    assert table["rest_share"].max() < 0.03
    assert table.loc[("device", 2, 512), "steps"] == table.loc[("device", 1, 512), "steps"] // 2


def test_trainings(runs):
    """The reference learns in every seed, so the large batch has something to be compared with."""
    rows = runs["accuracy"].rows
    last = rows[rows["rank"].eq(0) & rows["epoch"].eq(rows["epoch"].max())]
    assert (last.loc[last["variant"] == "reference", "test_percent"] > 90).all()


MISSED = {"three ways of measuring an all-reduce, most apart"}  # the lab says why
