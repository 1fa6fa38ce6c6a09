"""Lab 07's claims: every figure of the report recomputed, and the verdicts."""

import pandas as pd
import pytest

from labkit.claims import claims
from labkit.engine.recordings import replay
from labkit.tables.published import published
from labkit.theory.transformer import VOCABULARY
from lessons import precision_memory
from lessons.precision_memory.claims import agreed, is_slower, shape


@pytest.fixture(scope="module")
def table():
    return claims(precision_memory).set_index("claim")


def test_verdicts(table):
    assert table["holds"].to_dict() == {
        "loss_is_float16": False,
        "peak_with_mixed_precision": True,
        "peak_of_a_step": None,
        "forward_alone": None,
        "slower_models": None,
        "sums_of_a_hundredth": True,
        "largest_allocation": True,
    }


def test_figures(table):
    recomputed = table["recomputed"]
    assert recomputed["peak_with_mixed_precision"] == pytest.approx(62.0, abs=0.05)
    assert table.loc["peak_with_mixed_precision", "printed"] / 55.246 == pytest.approx(1.12, abs=0.005), "12 % apart"
    assert recomputed["peak_of_a_step"] == "54.5 GB, if it is the first step; else 70.0 GB"
    assert recomputed["forward_alone"] == pytest.approx(13.6, abs=0.5)
    assert recomputed["largest_allocation"] == 100
    slower = ["small, medium, large", "medium, large (H100); none (H200)"]
    assert table.loc["slower_models", ["printed", "recomputed"]].tolist() == slower


@pytest.mark.parametrize(
    ("name", "printed", "other", "claim", "holds"),
    [
        ("transformer_memory", "55.306", "57.530", "peak_of_a_step", False),
        ("transformer_memory", "55.246", "53.000", "peak_of_a_step", False),
        ("transformer_memory", "55.306", "70.100", "peak_of_a_step", True),
        ("transformer_memory", "42.708", "14.000", "forward_alone", True),
        ("transformer_memory", "61.998", "60.000", "peak_with_mixed_precision", False),
    ],
)
def test_other_figures_give_other_verdicts(edited_claims, name, printed, other, claim, holds):
    assert edited_claims(precision_memory, name, (printed, other)).loc[claim, "holds"] is holds


def test_the_reasons_figures():
    """What grows with the square of the context, what a first step's peaks rise by, and one layer's scores."""
    rows = published("transformer_memory").query("precision == 'float32' and quantity == 'peak'")
    peaks = rows.pivot_table(index="context_length", columns="phase", values="value")
    slopes = [(peaks["forward"][2 * n] - peaks["forward"][n]) / n for n in (128, 256)]
    square = (slopes[1] - slopes[0]) / 384
    scores = 4 * 4 * 32 * 512**2  # bytes of a layer: 4 samples, 32 heads
    assert square * 512**2 == pytest.approx(8.6, abs=0.05) == 2 * 32 * scores / 1e9
    assert scores / 2**20 == 128
    logits = 4 * 4 * 128 * VOCABULARY / 1e6
    assert peaks["train_step"].diff().dropna().mul(1e3).tolist() == pytest.approx([21, 39], abs=0.5)
    assert [logits, 2 * logits] == pytest.approx([21, 39], abs=2.1)
    recorded = precision_memory.memory(replay("h200/precision_memory/memory"))
    recorded = recorded.set_index(["precision", "phase", "sequence"])["peak"].sort_index()
    kept = recorded["float32", "forward", 512] * 2**20 / 1e9
    assert kept == pytest.approx(30.1, abs=0.05)
    assert 0.5 < square * 512**2 / (peaks["forward"][512] - kept) < 1, "most of the rest"
    later = recorded["float32", "steady step"] / recorded["float32", "first step"]
    assert later[[128, 256]].max() < 1.001 < 1.05 < later[512]


def test_mixed_precision_adds_the_bytes_of_the_copies():
    peaks = published("transformer_memory").query("phase == 'train_step' and context_length == 128")
    peaks = peaks[peaks["quantity"] == "peak"].set_index("precision")["value"]
    assert peaks["bfloat16"] - peaks["float32"] == pytest.approx(shape(precision="bfloat16").copies / 1e9, rel=0.02)
    assert peaks["bfloat16"] - peaks["float32"] == pytest.approx(6.75, abs=0.005)


@pytest.mark.parametrize(
    ("recorded", "holds"), [([{"a", "b"}, {"a"}], True), ([{"a"}, {"b"}], None), ([{"b"}, set()], False)]
)
def test_two_recorded_runs_decide_only_where_they_agree(recorded, holds):
    assert agreed({"a"}, recorded) is holds


@pytest.mark.parametrize(("tf32_ms", "slower"), [(20.4, True), (44.0, False)])
def test_a_host_that_became_slower_makes_no_model_slower(tf32_ms, slower):
    times = {"float32": (20.4, 0.6), "tf32": (tf32_ms, 0.6), "autocast": (45.0, 2.4)}
    assert is_slower(pd.DataFrame.from_dict(times, orient="index", columns=["ms", "spread_ms"])) is slower


def test_the_reports_forwards_kept_activations():
    """12 bytes and 4 bytes per parameter, and what is over the weights: 5.8, 12.5 and 29.1 GB."""
    from labkit.theory.transformer import SIZES, transformer

    weights = 4 * transformer(*SIZES["2.7b"][:3]).parameters / 1e9
    rows = published("transformer_memory").query("phase == 'forward'").set_index("context_length")["value"]
    assert (rows - weights).round(1).to_list() == [5.8, 12.5, 29.1]
