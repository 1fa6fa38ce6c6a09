"""Lab 13's claims: each figure and verdict, and that other published figures change the verdict."""

import pytest

from labkit.claims import claims
from labkit.tables.published import published
from lessons import scaling


@pytest.fixture(scope="module")
def table():
    return claims(scaling).set_index("claim")


def test_no_claim_holds_and_one_cannot_be_decided(table):
    assert len(table) == 17
    assert not any(held is True for held in table["holds"])
    assert table.index[[held is None for held in table["holds"]]].tolist() == ["large_batch_trains_better"]


def test_speedups_follow_from_the_reports_own_seconds(table):
    true = {"32": (1.577, 1.577), "128": (1.301, 1.370), "512": (1.656, 1.715)}
    for batch, (two, four) in true.items():
        for gpus, speedup in ((2, two), (4, four)):
            row = table.loc[f"speedup_{batch}_on_{gpus}"]
            assert row["says"] == f"speed-up of {gpus} GPUs at batch {batch}"
            assert row["recomputed"] == pytest.approx(speedup, abs=6e-4)
            assert f"{speedup:.2f}" in row["reason"]
    assert table.loc["speedup_128_on_1", "says"] == "speed-up of 1 GPU at batch 128"
    assert table.loc["speedup_128_on_1", "recomputed"] == 1


def test_figures(table):
    assert table.loc["neither", "recomputed"] == "9 to 59 %"
    assert table.loc["text_and_table", "recomputed"] == pytest.approx(-0.5375, abs=1e-4)
    assert table.loc["gradient_bytes", "recomputed"] == pytest.approx(44.696, abs=1e-3)
    assert table.loc["communication_is_loading", "recomputed"] == pytest.approx(233.8, abs=0.5)
    assert table.loc["halved_steps", ["printed", "recomputed"]].tolist() == pytest.approx([30.82, 15.41], abs=0.005)


@pytest.mark.parametrize(
    ("name", "printed", "other", "claim"),
    [
        ("resnet_speedup", "hpml4,32,2,30.818510502576828,1", "hpml4,32,2,30.818510502576828,1.577", "speedup_32_on_2"),
        ("resnet_speedup", "30.8219216464595", "15.4", "halved_steps"),
        ("resnet_statements", "0.5", "-0.54", "text_and_table"),
    ],
)
def test_another_printed_figure_holds(edited_claims, name, printed, other, claim):
    assert edited_claims(scaling, name, (printed, other)).loc[claim, "holds"] is True


def test_computing_that_halves_holds(edited_claims):
    def halve(rows):
        seconds = rows["compute_seconds"].mask(rows["gpus"] == 4, rows["compute_seconds"] / 2)
        return rows.assign(compute_seconds=seconds)

    changed = edited_claims(scaling, "resnet_compute_communication", halve)
    assert changed.loc["compute_does_not_fall", "holds"] is True


def test_the_printed_speedups_compare_batches():
    table = scaling.published_speedups(published("resnet_speedup"))
    known = table[table["previous_batch"].notna()]
    assert known["speedup_as_printed"].to_numpy() == pytest.approx(known["previous_batch"].to_numpy(), rel=1e-5)
    efficiency = table.set_index(["batch_per_gpu", "gpus"])["efficiency"].xs(4, level="gpus")
    assert (100 * efficiency).round().tolist() == [39, 34, 43]
    shares = scaling.published_shares(published("resnet_compute_communication"), published("resnet_speedup"))
    assert shares["unexplained_share"].between(0.40, 0.92).all()
