"""The claims of the report that lab 11 reads: figures, verdicts, and verdicts that flip when the printed table does."""

import pytest

from labkit.claims import claims
from labkit.engine.run import replay
from lessons import optimizer_sharding


@pytest.fixture(scope="module")
def table():
    return claims(optimizer_sharding).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("states_saved", 13, 7.993, False),
        ("states_and_temporaries_saved", 13, 11.989, True),
        ("saving_measured", 13, 12.3427, True),
        ("saving_in_gib", 13, 11.166, False),
        ("peak_is_four_models", 42, 31.97, False),
    ],
)
def test_a_claim_is_recomputed(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert row["printed"] == printed
    assert row["recomputed"] == pytest.approx(recomputed, rel=2e-3)
    assert row["holds"] is holds


def test_claims_whose_figures_are_words(table):
    formula = table.loc["memory_formula"]
    assert (formula["printed"], formula["recomputed"]) == ("4Ψ + KΨ/n: 20 GB", "8Ψ + 8Ψ/n: 24 GB")
    assert formula["holds"] is False
    step = table.loc["step_is_shorter"]
    assert (step["printed"], step["recomputed"]) == ("12.0 ms", "7.1 to 15.5 ms with many kernels, 0.0 ms with one")
    assert step["holds"] is None


def test_figures_in_the_reasons_are_those_of_the_recorded_runs():
    saved = optimizer_sharding.saving(optimizer_sharding.memory(replay(optimizer_sharding.RECORDED["memory"])))
    gb = (saved.set_index(["kernel", "way"])["measured"] * 2**20 / 1e9).round(1)
    assert (gb["fused", "zero_redundancy"], gb["foreach", "sharded"]) == (8.2, 16.4)
    times = optimizer_sharding.steps(replay(optimizer_sharding.RECORDED["steps"]))
    times = times[(times["optimizer"] == "adamw") & (times["kernel"] == "foreach")].set_index("way")
    longer_ms = times["update_ms"] - times["update_ms"]["unsharded"]
    assert longer_ms[["zero_redundancy", "sharded"]].round(1).tolist() == [3.7, -20.3]
    spread = times["spread_step_ms"] + times["spread_step_ms"]["unsharded"]
    assert ((times["step_ms"] - times["step_ms"]["unsharded"]).abs() <= spread).all()


@pytest.mark.parametrize(
    ("column", "sharded", "unsharded", "claim", "holds"),
    [
        ("peak_gb", 47, 55, "states_saved", True),
        ("peak_gb", 35, 55, "states_and_temporaries_saved", False),
        ("peak_gb", 44, 55, "saving_in_gib", True),
        ("peak_gb", 40, 55, "saving_measured", False),
        ("peak_gb", 32, 45, "peak_is_four_models", True),
        ("step_seconds", 0.22, 0.26, "step_is_shorter", False),
        ("step_seconds", 0.26, 0.26, "step_is_shorter", False),
    ],
)
def test_a_verdict_follows_the_printed_table(edited_claims, column, sharded, unsharded, claim, holds):
    def change(table):
        return table.assign(**{column: [sharded, unsharded]})

    assert edited_claims(optimizer_sharding, "optimizer_sharding", change).loc[claim, "holds"] is holds
