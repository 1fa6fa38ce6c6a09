"""Lab 01's claim: its verdict, and that another text of the report changes it."""

from labkit import claims as all_claims
from lessons import topology


def test_verdict():
    table = all_claims.claims(topology).set_index("claim")[["printed", "recomputed", "holds"]]
    assert table.loc["sockets_4xh100"].tolist() == ["0, 1 / 2, 3", "0 / 1, 2, 3", False]


def test_a_text_that_agrees_with_the_matrix_holds(edited_claims):
    changed = edited_claims(topology, "topology_claims", ("eml3-4xh100,GPU1,0", "eml3-4xh100,GPU1,1"))
    assert changed["holds"].tolist() == [True]
