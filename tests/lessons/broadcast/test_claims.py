"""Lab 02's claims: each figure and verdict, and that other published figures change the verdict."""

import pytest

from labkit import claims as all_claims
from lessons import broadcast


@pytest.fixture(scope="module")
def table():
    return all_claims.claims(broadcast).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("staging_4xh100", 1.504 / 0.404, 3.71, True),
        ("staging_8xh100", 1.3572 / 0.37238, 3.71, True),
        ("pipelining_4xh100", 0.404 / 0.103, 1.40, False),
        ("pipelining_8xh100", 0.37238 / 0.075007, 5.62, True),
    ],
)
def test_steps(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert row["printed"] == pytest.approx(printed, abs=5e-4)
    assert row["recomputed"] == pytest.approx(recomputed, abs=0.005)
    assert row["holds"] is holds


def test_the_size_is_open_and_its_range_holds_4_gib(table):
    for claim, seconds in (("size_4xh100", 0.103), ("size_8xh100", 0.0750075)):
        low, high = map(float, table.loc[claim, "recomputed"].removesuffix(" GiB").split(" to "))
        assert low < 3.7 < 4 < high
        assert high == pytest.approx(64e9 * seconds / 2**30, abs=0.05), "what one host link carries in broadcast3"
        assert table.loc[claim, "holds"] is None


def test_a_smaller_step_would_hold(edited_claims):
    changed = edited_claims(broadcast, "broadcast", ("broadcast3,0.103", "broadcast3,0.290"))
    assert changed.loc["pipelining_4xh100", "holds"] is True
