"""The claims of lab 06: the figures that they recompute, by hand once more."""

import pytest

from labkit.claims import claims
from labkit.tables.published import published
from lessons import benchmarking

HOLDS = {
    "small_deviation": False,
    "layers_not_parameters": True,
    "two_gpus": True,
    "third_backward": False,
    "only_backward": False,
    "compiling_removes_launches": True,
    "cache_is_full": False,
}


@pytest.fixture(scope="module")
def table():
    return claims(benchmarking).set_index("claim")


def test_each_claim_has_its_verdict(table):
    assert table["holds"].to_dict() == HOLDS


def test_the_figures_are_those_of_the_printed_tables(table):
    assert table.loc["small_deviation", "recomputed"] == pytest.approx(100 * 0.024 / 0.091)
    assert table.loc["layers_not_parameters", "recomputed"] == "2.7 to 3.0 ms per layer up to xl"
    assert table.loc["two_gpus", "recomputed"] == "at least 104 and 357 ms"  # 6.97 TFLOP at 67 and 19.5 TFLOP/s
    assert table.loc["third_backward", "printed"] == "464 and 193 ms"
    assert table.loc["only_backward", "recomputed"] == pytest.approx(0.439231 / 0.067724, rel=0.01)
    assert table.loc["compiling_removes_launches", "printed"] == "5.8 to 1.2 ×"
    assert table.loc["cache_is_full", "recomputed"] == pytest.approx(4 * 128_625_408 / (132 * 2**18))


def test_the_reasons_numbers_are_true():
    """What the docstrings say of the printed tables: shares, ratios, and the slope per billion parameters."""
    import statistics

    from labkit.theory.transformer import NAMES, SIZES
    from lessons.benchmarking.theory import parameters_of

    steps = published("transformer_steps")
    backward = steps[(steps["gpu"] == "H100") & (steps["phase"] == "backward")]
    assert round((backward["seconds_std"] / backward["seconds"]).min(), 2) == 0.14
    compiled = published("transformer_compile").query("mode == 'compiled'")
    wide = compiled.pivot_table(index="model", columns="phase", values="seconds")
    ratio = wide["backward"] / wide["forward"]
    assert (round(ratio.min(), 1), round(ratio.max(), 1)) == (5.6, 7.8)
    beyond = [float(wide.loc[name, "backward"] - 2 * wide.loc[name, "forward"]) for name in NAMES]
    slope = statistics.linear_regression([parameters_of(name) / 1e9 for name in NAMES], beyond).slope
    assert round(1e3 * slope) == 86
    rest = [wide.loc[name, "backward"] - 3 * wide.loc[name, "forward"] for name in NAMES]
    even = [1e12 * rest[i] / parameters_of(NAMES[i]) for i in (2, 3, 4)]
    assert NAMES[2:] == ("large", "xl", "2.7b") and (round(min(even)), round(max(even))) == (67, 73)
    first = steps.query("gpu == 'H100' and phase == 'forward'").set_index("model")["seconds"]
    second = published("transformer_compile").query("mode == 'eager'")
    second = second.pivot_table(index="model", columns="phase", values="seconds")
    ratio = first / second["forward"]
    assert round(1 / ratio["2.7b"] - 1, 2) == 0.06
    assert ratio.drop("2.7b").between(1.45, 1.7).all()
    assert round(1e3 * second.loc["small", "backward"]) == 58
    assert round(1e3 * wide.loc["2.7b", "forward"]) == 68
    hidden = {name: SIZES[name][0] for name in NAMES}
    assert round((hidden["xl"] / hidden["small"]) ** 2) == 4
