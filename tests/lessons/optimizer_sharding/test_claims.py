"""The claims of the report that lab 11 reads: figures, verdicts, and verdicts that flip when the printed table does."""

import pytest

from labkit.claims import claims
from labkit.engine.recordings import replay
from labkit.tables.published import published
from labkit.theory.transformer import SIZES, transformer
from lessons import optimizer_sharding


@pytest.fixture(scope="module")
def table():
    return claims(optimizer_sharding).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("model", 55, 40.974, None),
        ("same_step", 0.261, 0.846, None),
        ("times_the_model", 4, 3.0, False),
    ],
)
def test_a_claim_is_recomputed(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert row["printed"] == printed
    assert row["recomputed"] == pytest.approx(recomputed, rel=2e-3)
    assert row["holds"] is holds


def test_claims_whose_figures_are_words(table):
    formula, step = table.loc["memory_formula"], table.loc["step_is_shorter"]
    assert (formula["printed"], formula["recomputed"]) == ("4Ψ + KΨ/n floats", "2Ψ + 2Ψ/n floats")
    assert formula["holds"] is False
    assert (step["printed"], step["recomputed"]) == (pytest.approx(12), "7.1 to 15.5 ms (XL), 12.2 to 26.4 ms (2.7b)")
    assert step["holds"] is None
    saved, sending = table.loc["states_saved"], table.loc["broadcast_or_gather"]
    assert (saved["printed"], saved["recomputed"]) == (13, "8.0 or 12.0 GB (XL), 13.6 GB (2.7b)")
    assert (sending["recomputed"], sending["holds"]) == ("16.7 ms by broadcasts, 8.4 ms by an all-gather", False)


def test_recorded_updates_order_the_ways_to_send_as_the_least_times_do():
    steps = optimizer_sharding.steps(replay("h200x2/optimizer_sharding/steps")).query("optimizer == 'adamw'")
    updates = steps.set_index(["kernel", "way"])["update_ms"]["foreach"]
    assert [round(updates[way], 1) for way in ("zero_buckets", "sharded")] == [46.9, 28.6], "as the row says"


def test_the_2_7b_model_fits_all_three_printed_figures():
    gb = 4e-9 * transformer(*SIZES["2.7b"][:3]).parameters
    assert [round(times * gb, 1) for times in (4, 3, 1)] == [54.5, 40.9, 13.6], "as the reasons say"
    peaks = optimizer_sharding.report_peaks(published("optimizer_sharding")).set_index(["model", "sharded"])
    assert peaks.loc["2.7b", "gb"].tolist() == pytest.approx([4 * gb, 3 * gb])
    assert peaks.loc["2.7b", "gb"].tolist() == pytest.approx(peaks.loc["2.7b", "printed_gb"].tolist(), rel=0.03)


@pytest.mark.parametrize(
    ("column", "sharded", "unsharded", "claim", "holds"),
    [
        ("peak_gb", 28, 41, "model", True),
        ("peak_gb", 42, 70, "model", False),
        ("peak_gb", 28, 55, "states_saved", False),
        ("step_seconds", 0.84, 0.85, "same_step", True),
        ("peak_gb", 47, 55, "states_saved", True),
        ("step_seconds", 0.22, 0.26, "step_is_shorter", False),
        ("step_seconds", 0.26, 0.26, "step_is_shorter", False),
    ],
)
def test_a_verdict_follows_the_printed_table(edited_claims, column, sharded, unsharded, claim, holds):
    def change(table):
        return table.assign(**{column: [sharded, unsharded]})

    assert edited_claims(optimizer_sharding, "optimizer_sharding", change).loc[claim, "holds"] is holds
