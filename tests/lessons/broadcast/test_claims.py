"""Lab 02's claims: each figure and verdict, and that other published figures change the verdict."""

import pytest

from labkit import claims as all_claims
from labkit.engine.recordings import replay
from lessons import broadcast
from lessons.broadcast.tables import TEMPLATE_BYTES, fitting_sizes


@pytest.fixture(scope="module")
def table():
    return all_claims.claims(broadcast).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("staging_4xh100", 1.504 / 0.404, 3.71, True),
        ("pipelining_4xh100", "3.922 ×, by topology", 1.40, False),
        ("pipelining_8xh100", "4.965 ×, with pin_memory=True", 5.62, True),
    ],
)
def test_steps(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert row["printed"] == (printed if isinstance(printed, str) else pytest.approx(printed, abs=5e-4))
    assert row["recomputed"] == pytest.approx(recomputed, abs=0.005)
    assert row["holds"] is holds


def test_the_sizes_that_fit_hold_the_templates():
    recorded = broadcast.methods(replay(broadcast.RECORDED["sweep"]))
    for row, seconds in zip(fitting_sizes(recorded).to_dict("records"), (0.103, 0.0750075), strict=True):
        assert row["least_gib"] < TEMPLATE_BYTES / 2**30 < 4 < row["most_gib"]
        assert row["most_gib"] == pytest.approx(64e9 * seconds / 2**30), "what one host link carries in broadcast3"
    said = broadcast.sizes_that_fit(recorded).data
    assert "3.73 GiB fit the times of both reports" in said and "does not prove" in said


def test_a_smaller_step_would_hold(edited_claims):
    changed = edited_claims(broadcast, "broadcast", ("broadcast3,0.103", "broadcast3,0.290"))
    assert changed.loc["pipelining_4xh100", "holds"] is True
