"""What a report answers on XXL: each claim's figures and verdict, and that another printed figure turns the verdict."""

import pytest

from labkit.claims import claims
from lessons import accounting


@pytest.fixture
def table():
    return claims(accounting).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("parameters", 220, 219.848638, True),
        ("states", 3276, 3276, True),
        ("activations", 0.016, 0.016342, True),
        ("devices_needed", 41, 44, False),
        ("shards", 34, 37, False),
        ("activations_per_device", 0.002, 0.0081710, False),
        ("compute_bound_batch", 641, 395.3393, False),
    ],
)
def test_figures_and_verdict(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert (row["printed"], row["holds"]) == (pytest.approx(printed), holds)
    assert row["recomputed"] == pytest.approx(recomputed, rel=1e-4)


def test_a_bound_is_a_least_batch_and_counts_tokens(table):
    assert table.loc["direction", ["printed", "recomputed", "holds"]].tolist() == ["below", "above", False]
    assert "25 302" in table.loc["longer_context", "recomputed"] and table.loc["longer_context", "holds"] is False


def test_a_reasons_figures_are_those_of_the_tables(table):
    """The docstrings name what other readings of a label give: the tables must give it, too."""
    by_reading = accounting.labels()["devices"].tolist()
    assert by_reading == [44, 42, 41] and "42" in table.loc["devices_needed", "reason"]
    assert "641.57" in table.loc["compute_bound_batch", "reason"]
    half_the_blocks_gib = accounting.XXL.blocks / 2 * accounting.XXL.d_model * 2 / 2**30
    assert half_the_blocks_gib == pytest.approx(table.loc["activations_per_device", "printed"], abs=5e-4)


@pytest.mark.parametrize(
    ("line", "edited", "claim", "holds"),
    [
        ("equivalents,41", "equivalents,44", "devices_needed", True),
        ("95 GB,34", "95 GB,37", "shards", True),
        ("batch,641", "batch,395", "compute_bound_batch", True),
        ("holds,0.002", "holds,0.0082", "activations_per_device", True),
        ("parameters,220000000000.0", "parameters,330000000000.0", "parameters", False),
    ],
)
def test_another_printed_figure_turns_the_verdict(edited_claims, line, edited, claim, holds):
    assert edited_claims(accounting, "communication_accounting", (line, edited)).loc[claim, "holds"] is holds
