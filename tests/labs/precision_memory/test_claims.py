"""Lab 07's claims: every figure of the report recomputed, and the verdicts."""

import pytest

from labkit.claims import claims
from labkit.labs import precision_memory
from labkit.tables.published import published


@pytest.fixture(scope="module")
def table():
    return claims(precision_memory).set_index("claim")


def test_verdicts(table):
    assert table["holds"].to_dict() == {
        "sums_of_a_hundredth": True,
        "the_loss_is_float16": False,
        "mixed_precision_costs_under_ten_percent": False,
        "the_printed_peaks_are_the_first_steps": None,
        "a_steady_step_needs_more": False,
        "forward_only": False,
        "residual_tensor": True,
        "largest_allocation": True,
    }


def test_figures(table):
    recomputed = table["recomputed"]
    assert recomputed["mixed_precision_costs_under_ten_percent"] == "12.2 %"
    assert recomputed["the_printed_peaks_are_the_first_steps"] == pytest.approx(54.5, abs=0.02)
    assert recomputed["a_steady_step_needs_more"] == pytest.approx(70.0, abs=0.05)
    assert recomputed["forward_only"] == pytest.approx(13.6, abs=0.5)
    assert recomputed["largest_allocation"] == 100


def test_the_text_of_the_report_is_in_the_table():
    printed = published("transformer_memory")
    assert printed["report"].eq("cs336-a2").all()
    assert set(printed["quantity"]) == {"peak", "residual_tensor", "largest_allocation"}
    mixed = printed[printed["precision"] == "bfloat16"]
    assert mixed["value"].to_list() == [61.998]


def test_the_reports_forwards_kept_activations():
    """12 bytes and 4 bytes per parameter, and what is over the weights: 5.8, 12.5 and 29.1 GB."""
    from labkit.theory.transformer import SIZES, transformer

    weights = 4 * transformer(*SIZES["2.7b"][:3]).parameters / 1e9
    rows = published("transformer_memory").query("phase == 'forward'").set_index("context_length")["value"]
    assert (rows - weights).round(1).to_list() == [5.8, 12.5, 29.1]
