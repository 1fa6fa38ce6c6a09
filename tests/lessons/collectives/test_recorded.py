"""The recorded runs of lab 09: verified, and within the links."""

import pytest

from labkit.engine.recordings import replay
from lessons import collectives
from lessons.collectives.theory import COLLECTIVES


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in collectives.RECORDED.items()}


def test_all_are_whole(runs):
    for name, run in runs.items():
        assert run.status.get("state") == "finished", f"{name} was cut off"
        assert (run.plan.lab, run.plan.size) == ("collectives", "full"), name
        assert run.plan.device == "cuda", name
        assert set(run.rows["point"]) == {point.point for point in run.plan.points()}, name


@pytest.mark.parametrize("gpus", [2, 4])
def test_every_value_is_right_and_no_rate_beats_the_links(gpus):
    table = collectives.bandwidths(replay(collectives.RECORDED.nearest("sweep", gpus)))
    assert set(table["status"]) == {"ok"} and "impossible" not in set(table["verdict"])
    assert set(table["collective"]) == set(COLLECTIVES) and set(table["backend"]) == {"nccl", "gloo"}
    assert (table["bytes"].min(), table["bytes"].max()) == (2**10, 2**30)
    assert (table["count"] >= 5).all()


def test_rings_send_what_the_formula_says(runs):
    table = collectives.rings(runs["ring"])
    assert set(table["status"]) == {"ok"} and (table["sent_bytes"] == table["formula_bytes"]).all()
