"""Lab 14's claims: figures and verdicts, figures in their reasons, and verdicts that flip with the printed table."""

import pytest

from labkit.claims import claims
from labkit.tables.published import published
from lessons import beyond_the_node


@pytest.fixture(scope="module")
def table():
    return claims(beyond_the_node).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("flop_column", 15_259.92, 152.6, False),
        ("link_of_7b", 1600, 29.45, True),
        ("superlinear_13b", 2.39, 2.0, None),
        ("dip_of_1b", 15_555, 19_001, None),
        ("loss_of_125m", 9.1, 0.82, None),
        ("resnet_efficiency", 90, 82.5, True),
        ("vgg_efficiency", 25, 8.0, None),
    ],
)
def test_a_claim_is_recomputed(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert row["printed"] == pytest.approx(printed, rel=1e-3)
    assert row["recomputed"] == pytest.approx(recomputed, rel=2e-3)
    assert row["holds"] is holds


def test_claims_without_a_printed_link_or_a_formula(table):
    assert table.loc["link_of_13b_on_h100", "printed"] is None and table.loc["link_of_13b_on_h100", "holds"] is None
    assert table.loc["link_of_13b_on_h100", "recomputed"] == pytest.approx(632.7, abs=0.1)


def test_the_tables_were_copied_without_slips():
    """A model's MFU over its tokens/s is one number in all its rows, and so is the third column over both."""
    rows = published("mpt_scaling")
    peak = rows["gpu"].map({"A100 40GB": 312e12, "H100 80GB": 989.5e12})
    ratios = rows["mfu_percent"] / rows["tokens_per_second_per_gpu"] * peak
    assert (ratios.groupby(rows["model"]).agg(lambda one: one.max() / one.min()) < 1.0015).all()
    factor = rows["model_flop_column"] / peak / rows["mfu_percent"]
    assert factor.groupby(rows["gpu"]).mean().to_dict() == pytest.approx(
        {"A100 40GB": 1.0, "H100 80GB": 0.01}, rel=1e-3
    )


def test_figures_in_the_reasons():
    scaling = (
        beyond_the_node.published_scaling(published("mpt_scaling")).set_index(["gpu", "model", "gpus"]).sort_index()
    )
    row = scaling.loc[("A100 40GB", "7b", 128)]
    assert row["sent_gb"] == pytest.approx(37.5, abs=0.1) and row["step_s"] == pytest.approx(10.2, abs=0.05)
    assert row["sent_gb"] / 200 == pytest.approx(0.19, abs=0.005), "1600 Gbit/s are 200 GB/s"
    row = scaling.loc[("H100 80GB", "13b", 64)]
    assert (row["sent_gb"], row["step_s"]) == pytest.approx((67.5, 0.853), abs=0.05)
    row = scaling.loc[("A100 40GB", "125m", 128)]
    assert 1e3 * row["sent_gb"] / 200 == pytest.approx(3.5, abs=0.05) and row["step_s"] == pytest.approx(
        0.43, abs=0.005
    )
    speeds = scaling["tokens_per_second_per_gpu"].loc["A100 40GB", "1b"]
    assert speeds[64] / speeds[32] == pytest.approx(1.22, abs=0.005)
    assert scaling["model_flop_column"].loc["A100 40GB", "70b", 128] / 312e12 == pytest.approx(49, abs=0.1)
    transfers = [2 * 127 / 128 * 4 * size / 3.125e9 for size in (44.5e6, 138_357_544)]
    assert transfers == pytest.approx([0.113, 0.351], abs=5e-4)
    alone_s = 64 * 16 / 1656.82 - 2 * 3 / 4 * 4 * 44.5e6 / 3.125e9
    assert alone_s == pytest.approx(0.53, abs=0.005)
    assert 1 - alone_s * (1 / 0.9 - 1) / transfers[0] == pytest.approx(0.5, abs=0.05), "about half is hidden"


@pytest.mark.parametrize(
    ("name", "printed", "other", "claim", "holds"),
    [
        ("mpt_scaling", "1.525992E+16", "1.525992E+14", "flop_column", True),
        ("mpt_scaling", "A100 40GB,1600,", "A100 40GB,25,", "link_of_7b", False),
        ("mpt_scaling", ",1993", ",1650", "superlinear_13b", True),
        ("mpt_scaling", ",123936", ",136000", "loss_of_125m", True),
        ("horovod_scaling", "25,,,90", "25,,,70", "resnet_efficiency", False),
    ],
)
def test_another_printed_figure_has_another_verdict(edited_claims, name, printed, other, claim, holds):
    assert edited_claims(beyond_the_node, name, (printed, other)).loc[claim, "holds"] is holds
