"""Lab 01's claims: each verdict, and that another text of the report changes it."""

from labkit import claims as all_claims
from lessons import topology


def test_verdicts():
    table = all_claims.claims(topology).set_index("claim")[["printed", "recomputed", "holds"]]
    assert table.loc["sockets_4xh100"].tolist() == ["0, 1 / 2, 3", "0 / 1, 2, 3", False]
    assert table.loc["balanced_4xh100"].tolist() == ["2 + 2", "1 + 3", False]
    assert table.loc["sockets_8xh100", "printed"] == "0, 1, 2, 3 / 4, 5, 6, 7"
    assert table.loc["sockets_8xh100", "holds"] is None


def test_a_text_that_agrees_with_the_matrix_holds(edited_claims):
    changed = edited_claims(topology, "topology_claims", ("eml3-4xh100,GPU1,0", "eml3-4xh100,GPU1,1"))
    assert changed["holds"].tolist() == [True, True, None]
