"""The claims of lab 06: the figures that they recompute, by hand once more, and what their reasons say."""

import pytest

from labkit.claims import claims
from labkit.engine.recordings import replay
from labkit.tables.published import published
from labkit.theory.transformer import SIZES
from lessons import benchmarking
from lessons.benchmarking.theory import forward_tflop

HOLDS = {
    "layers_not_parameters": True,
    "slower_h100": True,
    "two_gpus": True,
    "compiling_removes_launches": True,
    "only_backward": None,
}


@pytest.fixture(scope="module")
def table():
    return claims(benchmarking).set_index("claim")


def test_each_claim_has_its_verdict(table):
    assert table["holds"].to_dict() == HOLDS


def test_the_figures_are_those_of_the_printed_tables(table):
    assert table.loc["layers_not_parameters", ["printed", "recomputed"]].tolist() == pytest.approx([0.6, 2 / 3])
    assert table.loc["slower_h100", "printed"] == "35 and 28 ms"
    assert table.loc["two_gpus", "recomputed"] == "104 and 357 ms"  # 6.97 TFLOP at 67 and 19.5 TFLOP/s
    assert table.loc["only_backward", "printed"] == pytest.approx(0.439231 / 0.067724, abs=0.005)
    assert table.loc["compiling_removes_launches", "printed"] == "5.8 to 1.2 ×"
    assert table.loc["compiling_removes_launches", "recomputed"] == "at most 11.6 to 1.6 ×"  # 3.48 TFLOP of 2.7b: 52 ms


@pytest.mark.parametrize(
    ("name", "old", "new", "claim", "holds"),
    [
        (
            "transformer_steps",
            "H100,2.7b,float32,forward,0.079",
            "H100,2.7b,float32,forward,0.227",
            "layers_not_parameters",
            False,
        ),
        (
            "transformer_steps",
            "H100,xl,float32,forward,0.132",
            "H100,xl,float32,forward,0.264",
            "layers_not_parameters",
            False,
        ),
        (
            "transformer_steps",
            "A100,2.7b,float32,backward,0.676",
            "A100,2.7b,float32,backward,0.193",
            "two_gpus",
            False,
        ),
        (
            "transformer_compile",
            "2.7b,compiled,forward,0.067724",
            "2.7b,compiled,forward,0.041",
            "compiling_removes_launches",
            None,
        ),
    ],
)
def test_other_printed_times_give_other_verdicts(edited_claims, name, old, new, claim, holds):
    assert edited_claims(benchmarking, name, (old, new)).loc[claim, "holds"] is holds


def test_the_reasons_numbers_are_true():
    steps = published("transformer_steps").query("precision == 'float32'")
    wide = steps.pivot_table(index="model", columns=["gpu", "phase"], values="seconds")
    slower = wide["H100", "forward"] > wide["A100", "forward"]
    assert set(slower[slower].index) == {"small", "medium", "large"}
    table = published("transformer_compile").pivot_table(index="model", columns=["mode", "phase"], values="seconds")
    assert round((table["compiled", "backward"] / table["compiled", "forward"]).min(), 1) == 5.6
    assert round((SIZES["xl"][0] / SIZES["small"][0]) ** 2) == 4
    assert (SIZES["xl"][2], SIZES["2.7b"][2]) == (48, 32)
    recorded = replay("h200/benchmarking/steps").medians(["model", "precision", "mode", "phase"], "ms")
    eager = recorded.query("mode == 'eager' and phase == 'forward'").set_index(["precision", "model"])["ms"]
    ours = benchmarking.modes(replay(benchmarking.RECORDED["steps"])).query("phase == 'forward'").set_index("model")
    assert round(ours["compiling"]["small"], 1) == 1.4
    ratios = [eager[precision, "2.7b"] / eager[precision, "xl"] for precision in ("float32", "tf32")]
    assert ratios == pytest.approx([1.36, 0.66], abs=0.005)
    assert forward_tflop("2.7b") / forward_tflop("xl") == pytest.approx(1.7, abs=0.05)
