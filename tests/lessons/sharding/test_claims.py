"""The claims of the GPT-2 study: figures and verdicts, and that other printed figures give other verdicts."""

import pytest

from labkit.claims import claims
from labkit.engine.run import replay
from labkit.tables import published as tables
from labkit.theory.gpt import SIZES, gpt
from lessons import sharding

FIGURES = {  # printed, recomputed, holds
    "parameters": (474.7, 2952.7, False),
    "peak": (3076.27, 11810.8, False),
    "memory_at_64": (60, 120.463, False),  # 114 883 MB of 2²⁰ bytes
    "parameter_count": (774_439_808, 774_030_080, False),
    "kernel_time": (7010.3, 6930.4, False),
    "states_by_batch": (1997, 11810.8, False),
    "memory_per_sequence": (1764, 6381.23, False),
    "measured_rate": (32582, 7506.22, False),
    "one_sequence": (15619, 3760.8, False),
    "full_saving": (3.0, 2.0, False),
    "gradient_only_saving": (1.5, 1.07266, False),
    "differences": (0.86, 0.92388, True),
    "activations": (900, 14110.7, False),
    "larger_batch": (5, 1.0916, False),
    "rate": (32582, 5835.8, False),
    "rate_in_float32": (170, 67.0, False),
    "fewer_all_reduces": (4, 2, False),
    "window_is_a_step": (7010.3, 2915, False),
    "reduce_scatters": (0, 37, False),
    "time_of_gathers": (2.13, 0.5221, None),
    "sent_by_ddp": (475, 2952.69, False),
}
WORDS = {
    "precision": ("FP16 mixed precision", "float32", False),
    "model_of_the_rate": ("GPT-2 Large", "GPT-2 small", False),
    "ranking": ("gradient-only, DDP, full", "DDP, gradient-only, full", False),
    "parts": ("4, 8", "8.5, 11.5", False),
    "speedups": ("1.93, 1.91, 1.92", "1.99, 1.97, 1.99", True),
    "links": ("32, 900", "64, 450", False),
    "gathered_by_gradient_only": ("gradients and optimizer states", "parameters", False),
    "efficiency_lost": ("0.51, 0.89, 0.16 %", "3.7, 4.5, 4.2 %", False),
    "projected_memory": ("8, 6, 4.5", "7.5, 5.25, 4.12", False),
    "exposed": ("7.9, 4.6, 1.7", "3.3, 2.4, 2.1", False),
    "cost_of_communication": ("7.9, 4.6, 1.7", "95, 105, 73", False),
    "collectives_called": ("109, 73, 37", "109, 73, 37", True),
}


def judged():
    return claims(sharding).set_index("claim")


def test_figures_and_verdicts():
    table = judged()
    for name, (printed, recomputed, holds) in FIGURES.items():
        assert table.loc[name, "printed"] == pytest.approx(printed, rel=1e-4), name
        assert table.loc[name, "recomputed"] == pytest.approx(recomputed, rel=1e-4), name
        assert table.loc[name, "holds"] is holds, name
    for name, expected in WORDS.items():
        assert tuple(table.loc[name, ["printed", "recomputed", "holds"]]) == expected, name


def test_the_reasons_say_what_the_figures_are():
    small = gpt(*SIZES["GPT-2 small"][:2]).parameters
    assert 4 * small / 2**20 == pytest.approx(474.7, abs=0.01), "the parameters are the small model's"
    assert 16 * small / 2**20 == pytest.approx(1899, abs=1), "there is room for the small model's states"
    rows = tables.published("gpt2_breakdown").dropna(subset="exposed_ms")
    discounted = rows["non_compute_ms"] * (1 - rows["overlap_percent"] / 100)
    assert discounted.tolist() == pytest.approx(rows["exposed_ms"].tolist(), abs=0.06), "the overlap is taken off twice"


def test_figures_in_the_reasons_of_memory():
    states, kept = (share * 16 * gpt(*SIZES["GPT-2 Large"][:2]).parameters / 2**20 for share in (1, 10 / 16))
    activations = judged().loc["activations", "recomputed"]
    assert (states + activations) / (kept + activations) == pytest.approx(1.2, abs=0.01)
    gigabytes = tables.published("gpt2_strategies").set_index("strategy")["peak_memory_gb"]
    least = (gigabytes["baseline"] - 0.5) / (gigabytes["fsdp_grad"] + 0.5)
    assert least == pytest.approx(1.35, abs=0.005)
    projected = tables.published("gpt2_projection").set_index("gpus")["fsdp_grad_memory_gb"].loc[2:]
    less = {gb: [1 - gb * (4 + 12 / n) / 16 / projected[n] for n in projected.index] for gb in (12, 12.384)}
    assert less[12] == pytest.approx([0.0625, 0.125, 0.083], abs=1e-3)
    assert less[12.384] == pytest.approx([0.0325, 0.097, 0.054], abs=1e-3)


def test_figures_in_the_reasons_of_speed():
    steps = sharding.reported(replay(sharding.RECORDED["asreported"])).set_index("strategy")
    assert steps["spread_step_ms"].max() < 0.75, "± 0.7 ms at most"
    apart = (steps["speedup"] / steps["printed_speedup"] - 1).drop("single")
    assert apart.between(0.0295, 0.04).all(), "3 to 4 % apart"
    last = tables.published("gpt2_projection").set_index("gpus").loc[8, ["ddp_speedup", "fsdp_speedup"]]
    assert (1 - last / 8).tolist() == pytest.approx([0.15, 0.10]), "15 and 10 % are lost"
    window = tables.published("gpt2_breakdown").set_index("strategy")["kernel_ms"] / 1e3
    steps_s = tables.published("gpt2_strategies").set_index("strategy")["train_seconds_20_steps"] / 20
    assert (window / steps_s).round(1)["ddp"] == 2.4
    batches = tables.published("gpt2_batch_size").set_index("batch")["memory_mb"]
    assert float(batches[32]) == 58438, "of 32 sequences"


def test_eight_claims_are_shown_and_not_all_of_them_fail():
    shown = judged()[judged()["chosen"]]
    assert len(shown) == 8 and set(shown["holds"]) == {True, False}
    assert "optimizer_states" in judged().index and judged().loc["optimizer_states", "printed"] == "6, 2"


@pytest.mark.parametrize(
    ("claim", "holds", "name", "by", "row", "figures"),
    [
        ("parameters", True, "memory", "item", "parameters", {"megabytes": 2952.7}),
        ("peak", True, "memory", "item", "peak allocated", {"megabytes": 12_000}),
        ("full_saving", None, "strategies", "strategy", "fsdp_full", {"peak_memory_gb": 6}),
        ("gradient_only_saving", False, "strategies", "strategy", "fsdp_grad", {"peak_memory_gb": 9}),
        ("gradient_only_saving", True, "strategies", "strategy", "fsdp_grad", {"peak_memory_gb": 11}),
        ("parts", False, "rank_memory", "part", "total", {"gigabytes": 8.5}),
        ("memory_at_64", True, "statements", "statement", "memory of 64 sequences", {"value": 120}),
        (
            "gathered_by_gradient_only",
            True,
            "statements",
            "statement",
            "gathered by gradient-only",
            {"value": "parameters"},
        ),
        ("optimizer_states", True, "statements", "statement", "optimizer states in another place", {"value": 6}),
        ("activations", True, "statements", "statement", "most activations", {"value": 14_100}),
        ("rate", True, "strategies", "strategy", "baseline", {"tokens_per_second": 5836}),
        ("rate_in_float32", True, "strategies", "strategy", "baseline", {"tokens_per_second": 5836}),
        ("model_of_the_rate", True, "strategies", "strategy", "baseline", {"tokens_per_second": 5836}),
        ("precision", True, "statements", "statement", "kernel of matrix products", {"value": "gemm_f16"}),
        ("ranking", True, "strategies", "strategy", "fsdp_grad", {"train_seconds_20_steps": 58.2}),
        ("differences", False, "strategies", "strategy", "fsdp_full", {"train_seconds_20_steps": 61}),
        ("differences", False, "strategies", "strategy", "fsdp_grad", {"train_seconds_20_steps": 58.2}),
        ("speedups", False, "strategies", "strategy", "ddp", {"speedup": 1.9}),
        ("fewer_all_reduces", True, "statements", "statement", "fewer all-reduces by accumulation", {"value": 2}),
        ("projected_speed", True, "projection", "gpus", 8, {"fsdp_speedup": 7.6, "ddp_speedup": 7.6}),
        ("collectives_called", False, "operators", "calls", 109, {"calls": 13}),
        ("kernel_time", False, "breakdown", "strategy", "ddp", {"kernel_ms": 6930.4}),
        ("time_of_gathers", True, "operators", "calls", 37, {"microseconds": 26_000}),
        ("sent_by_ddp", True, "statements", "statement", "sent by ddp per step", {"value": 2953}),
    ],
)
def test_other_figures_give_other_verdicts(edited_claims, claim, holds, name, by, row, figures):
    def change(table):
        rows = table[by] == row
        return table.assign(
            **{column: table[column].astype(object).mask(rows, value) for column, value in figures.items()}
        )

    assert edited_claims(sharding, f"gpt2_{name}", change).loc[claim, "holds"] is holds
