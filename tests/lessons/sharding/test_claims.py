"""The claims of the GPT-2 study: the figures in their reasons, and that other printed figures give other verdicts.

The figures and verdicts of the claims themselves are the output of their notebook's cell.
"""

import pytest

from labkit.claims import claims
from labkit.engine.recordings import replay
from labkit.tables import published as tables
from labkit.theory.gpt import SIZES, gpt
from lessons import sharding
from lessons.sharding.claims import LARGE, printed_rate, rate_by_seconds, tflops


def judged():
    return claims(sharding).set_index("claim")


def test_the_reasons_say_what_the_figures_are():
    small = gpt(*SIZES["GPT-2 small"][:2]).parameters
    assert 4 * small / 2**20 == pytest.approx(474.7, abs=0.01), "the parameters are the small model's"
    operations = tables.published("gpt2_operators")["operation"]
    assert not operations.str.contains("ReduceScatter").any() and operations.str.contains("AllGather").any()


def test_figures_in_the_reasons_of_memory():
    states = 16 * gpt(*SIZES["GPT-2 Large"][:2]).parameters / 2**20
    gigabytes = tables.published("gpt2_strategies").set_index("strategy")["peak_memory_gb"]
    assert (gigabytes["baseline"] - 0.5) / (gigabytes["fsdp_full"] + 0.5) == pytest.approx(2.6, abs=0.05)
    assert states / judged().loc["peak", "printed"] == pytest.approx(3.84, abs=0.005), "nearly four times"
    one, four = map(int, judged().loc["same_memory", "recomputed"].split(", "))
    assert [one, four, four - one] == [3761, 9052, 5291]
    assert judged().loc["memory_at_64", "holds"] is None
    assert judged().loc["memory_at_64", "printed"] == pytest.approx(58_438 * 2**20 / 1e9, abs=1.5), "32 sequences"
    assert judged().loc["larger_batch", ["recomputed", "holds"]].tolist() == [pytest.approx(5.26, abs=0.01), True]
    assert (one + (4 * 10 - 1) * (four - one) / 3) * 2**20 / 1e9 == pytest.approx(76, abs=0.5), "40 sequences"
    assert judged().loc["seventy_billion", ["printed", "recomputed", "holds"]].tolist() == [80, 140, False]


def test_figures_in_the_reasons_of_speed():
    run = sharding.reported(replay(sharding.RECORDED["asreported"])).set_index("strategy")
    assert run.loc["single", "tokens_per_s"] == pytest.approx(7506, abs=1)
    assert run["step_ms"].drop("single").sort_values().index.tolist() == ["ddp", "fsdp_grad", "fsdp_full"]
    needed = judged().loc["rate_in_float32", ["printed", "recomputed", "holds"]].tolist()
    assert needed == [170, 67, None] and tables.H100.tflops("fp16") == 989.5, "in FP16 it can be"
    assert [tflops(LARGE, rate_by_seconds()), tflops("GPT-2 small", printed_rate())] == pytest.approx([30, 28], abs=0.5)
    seconds = tables.published("gpt2_strategies").set_index("strategy")["train_seconds_20_steps"]
    lost = 100 * (1 - seconds["baseline"] / (2 * seconds.drop("baseline")))
    assert (round(lost.min(), 1), round(lost.max(), 1)) == (3.7, 4.5)
    batches = tables.published("gpt2_batch_size").set_index("batch")["memory_mb"]
    assert float(batches[32]) == 58438, "of 32 sequences"


# Each claim that the edits of one round decide anew: its verdict, and the table, row and figures that are edited.
ROUNDS = {
    "larger figures": [
        ("peak", True, "memory", "item", "peak allocated", {"megabytes": 12_000}),
        ("full_saving", None, "strategies", "strategy", "fsdp_full", {"peak_memory_gb": 6}),
        ("parts", False, "rank_memory", "part", "total", {"gigabytes": 8.5}),
        ("memory_at_64", True, "statements", "statement", "limit of memory that 64 sequences confirm", {"value": 120}),
        ("larger_batch", False, "statements", "statement", "larger batch in the memory that is left", {"value": 6}),
        ("seventy_billion", True, "statements", "statement", "memory of a GPU for gradient-only", {"value": 160}),
        ("activations", True, "statements", "statement", "most activations", {"value": 14_100}),
        ("fewer_all_reduces", True, "statements", "statement", "fewer all-reduces by accumulation", {"value": 2}),
        ("collectives_called", False, "operators", "calls", 109, {"calls": 13}),
        ("rate_in_float32", False, "strategies", "strategy", "baseline", {"tokens_per_second": 200_000}),
    ],
    "another rate, and words": [
        ("rate", True, "strategies", "strategy", "baseline", {"tokens_per_second": 5836}),
        ("rate_in_float32", True, "strategies", "strategy", "baseline", {"tokens_per_second": 5836}),
        ("ranking", True, "strategies", "strategy", "fsdp_grad", {"train_seconds_20_steps": 58.2}),
        ("precision", True, "statements", "statement", "kernel of matrix products", {"value": "gemm_f16"}),
        (
            "gathered_by_gradient_only",
            True,
            "statements",
            "statement",
            "gathered by gradient-only",
            {"value": "parameters"},
        ),
    ],
}


@pytest.mark.parametrize("edits", ROUNDS.values(), ids=ROUNDS)
def test_other_figures_give_other_verdicts(edited_claims, edits):
    for name in dict.fromkeys(name for _, _, name, *_ in edits):

        def change(table, edited=name):
            table = table.astype(object)
            for _, _, name, by, row, figures in edits:
                if name == edited:
                    table.loc[table[by] == row, [*figures]] = [*figures.values()]
            return table

        table = edited_claims(sharding, f"gpt2_{name}", change)
    assert table["holds"].reindex([claim for claim, *_ in edits]).to_dict() == {
        claim: holds for claim, holds, *_ in edits
    }
