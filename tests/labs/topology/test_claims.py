"""Lab 01's claims: each verdict, and that another text of the report changes it."""

import shutil

from labkit import claims as all_claims
from labkit.labs import topology
from labkit.tables import published


def test_verdicts():
    table = all_claims.claims(topology).set_index("claim")
    figures = table[["printed", "recomputed", "holds"]]
    assert figures.loc["sockets_4xh100"].tolist() == ["0, 1 | 2, 3", "0 | 1, 2, 3", False]
    assert figures.loc["sockets_8xh100", "printed"] == "0, 1, 2, 3 | 4, 5, 6, 7"
    assert figures.loc["sockets_8xh100", "holds"] is None
    assert figures.loc["balanced_8xh100"].tolist() == ["4 | 4", "4 | 0", False]


def test_a_text_that_agrees_with_the_matrix_holds(tmp_path, monkeypatch):
    copied = shutil.copytree(published.PUBLISHED, tmp_path / "published")
    csv = copied / "topology_claims.csv"
    csv.write_text(csv.read_text().replace("eml3-4xh100,GPU1,0", "eml3-4xh100,GPU1,1"))
    monkeypatch.setattr(published, "PUBLISHED", copied)
    assert all_claims.claims(topology).set_index("claim").loc["sockets_4xh100", "holds"] is True
