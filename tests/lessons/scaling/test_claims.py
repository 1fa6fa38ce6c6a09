"""Lab 13's claims: each figure and verdict, and that other published figures change the verdict."""

import pytest

from labkit.claims import claims
from labkit.engine.recordings import replay
from labkit.tables.published import published
from lessons import scaling
from lessons.scaling.theory import model


@pytest.fixture(scope="module")
def table():
    return claims(scaling).set_index("claim")


def test_verdicts(table):
    is_open = {"epoch_on_four", "speedups", "computing_of_a_step"}
    assert {name for name, holds in table["holds"].items() if holds is None} == is_open
    assert {name for name, holds in table["holds"].items() if holds} == {"gradients_suffice"}


def test_figures(table):
    assert table.loc["speedups", "printed"] == "1.00, 1.47, 1.34 on 2 GPUs; 1.00, 1.55, 1.31 on 4 GPUs"
    assert table.loc["speedups", "recomputed"] == "1.58, 1.30, 1.66 on 2 GPUs; 1.58, 1.37, 1.72 on 4 GPUs"
    assert table.loc["text_and_table", "recomputed"] == pytest.approx(-0.5375, abs=1e-4)
    suffice = ["locks, too (Q6); gradients only suffice (Q7)", "2 broadcasts per step; 0 without `broadcast_buffers`"]
    assert table.loc["gradients_suffice", ["printed", "recomputed"]].tolist() == suffice
    assert table.loc["epoch_on_four", ["printed", "recomputed"]].tolist() == pytest.approx([30.82, 15.41], abs=0.005)
    assert table.loc["computing_of_a_step", ["printed", "recomputed"]].tolist() == pytest.approx([1.18, 9.2], abs=0.01)


def test_figures_in_the_reasons():
    parts = published("resnet_compute_communication").query("gpus == 2").set_index("batch_per_gpu")["compute_seconds"]
    steps = {batch: -(-50_000 // (2 * batch)) for batch in parts.index}
    assert sorted(round(1e3 * seconds / steps[batch]) for batch, seconds in parts.items()) == [22, 23, 27]
    assert steps[32] == 782
    assert 4 * model().parameters / 1e6 == pytest.approx(44.7, abs=0.05)
    alone = scaling.exchange(replay("h100x2/scaling/communication")).set_index("gpu_batch")["alone_ms"]
    assert alone[32] == pytest.approx(0.357, abs=5e-4) and round(782 * alone[32]) == 279
    printed = published("resnet_compute_communication").set_index(["batch_per_gpu", "gpus"])["communication_seconds"]
    assert 1e3 * printed[32, 2] == pytest.approx(149, abs=0.5)


@pytest.mark.parametrize(
    ("name", "printed", "other", "claim"),
    [
        ("resnet_statements", "0.5", "-0.54", "text_and_table"),
    ],
)
def test_another_printed_figure_holds(edited_claims, name, printed, other, claim):
    assert edited_claims(scaling, name, (printed, other)).loc[claim, "holds"] is True


def test_right_speedups_hold(edited_claims):
    def put_right(rows):
        alone = rows[rows["gpus"] == 1].set_index("batch_per_gpu")["epoch_seconds"]
        return rows.assign(speedup_as_printed=rows["batch_per_gpu"].map(alone) / rows["epoch_seconds"])

    changed = edited_claims(scaling, "resnet_speedup", put_right)
    assert changed.loc["speedups", "holds"] is True


def test_speedups_over_nothing_do_not_hold(edited_claims):
    changed = edited_claims(scaling, "resnet_speedup", ("1.47291417745", "1.9"))
    assert changed.loc["speedups", "holds"] is False


def test_computing_that_grows_with_the_batch_holds(edited_claims):
    def grow(rows):
        return rows.assign(compute_seconds=rows["compute_seconds"].mask(rows["batch_per_gpu"] == 512, 10.4))

    changed = edited_claims(scaling, "resnet_compute_communication", grow)
    assert changed.loc["computing_of_a_step", "holds"] is True


def test_the_printed_speedups_compare_batches():
    table = scaling.published_speedups(published("resnet_speedup"))
    previous = table.groupby("gpus")["epoch_seconds"].shift()
    after_the_first = table[previous.notna()]
    batches = (previous / table["epoch_seconds"]).dropna()
    assert batches[table["gpus"] == 1].round(2).tolist() == [1.79, 1.05]
    assert after_the_first["speedup_as_printed"].to_numpy() == pytest.approx(batches.to_numpy(), rel=1e-5)
