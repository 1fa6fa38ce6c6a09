"""The least time of an attention on a GPU, the figures in the claims' reasons, and what turns a claim's verdict."""

import math

import pandas as pd
import pytest

from labkit.claims import claims
from labkit.engine.recordings import replay
from labkit.node import limits
from labkit.tables.published import published
from lessons import attention
from lessons.attention.claims import as_long, compares_launches
from lessons.attention.tables import printed
from lessons.attention.tables.memory import compiled_gains
from lessons.attention.tables.speed import CACHE_BYTES, physics, rates

H100, H200, V100 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "Tesla V100-SXM2-16GB"
TARGET = {
    "implementation": "flash",
    "phase": "both",
    "heads": 16,
    "sequence": 16384,
    "head_dim": 64,
    "precision": "bfloat16",
    "causal": True,
    "gpu": H200,
    "ms": 4.0,
}
CAUSAL = 16384 * 16385 / 2


def row(**changed):
    """Give what physics makes of one row: the lab's target, or another."""
    return physics(pd.DataFrame([TARGET | changed])).iloc[0]


def test_least_times_are_the_stated_operations_and_bytes():
    assert row()["least_ms"] == pytest.approx(2 * 7 * CAUSAL * 64 * 16 / 989.5e9)
    assert row(implementation="plain", phase="backward")["least_compute_ms"] == pytest.approx(
        2 * 4 * CAUSAL * 64 * 16 / 989.5e9
    )
    assert row(causal=False)["least_ms"] == pytest.approx(row()["least_ms"] * 2, rel=1e-3)
    forward = {"phase": "forward", "gpu": H100, "precision": "float32", "heads": 8, "causal": False, "head_dim": 128}
    square, tensors = 8 * 16384**2 * 4, (4 * 16384 * 128 * 4 + 4 * 16384) * 8
    by_hand, compiled = (row(**forward, implementation=name) for name in ("by_hand", "compiled"))
    assert by_hand["least_move_ms"] == pytest.approx((2 * square + tensors - 3 * CACHE_BYTES) / 3352e6)
    assert compiled["least_move_ms"] == pytest.approx((tensors - CACHE_BYTES) / 3352e6)
    assert compiled["least_ms"] == compiled["least_compute_ms"] == pytest.approx(4 * 8 * 16384**2 * 128 / 494.5e9)
    assert row(**forward | {"phase": "both"}, implementation="plain")["least_move_ms"] > 1.4 * by_hand["least_move_ms"]


def test_what_a_cache_may_hold_need_not_move():
    assert row(sequence=1024, implementation="plain")["least_move_ms"] == 0
    assert row(sequence=2048, implementation="plain")["least_move_ms"] > 0


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "ok"),
        ({"implementation": "sdpa flash", "ms": 6.8}, "ok"),
        ({"ms": 1.9}, "impossible"),
        ({"implementation": "plain", "phase": "forward", "ms": 3.0}, "impossible"),
        ({"implementation": "compiled", "phase": "forward", "ms": 3.0}, "ok"),
        ({"implementation": "plain", "phase": "forward", "ms": 12.0}, "ok"),
        ({"ms": math.nan}, "not measured"),
        ({"gpu": "NVIDIA Unknown"}, "no limit known"),
        ({"gpu": None}, "no limit known"),
        ({"gpu": V100}, "ok"),
        ({"gpu": V100, "precision": "float32", "ms": 120.0}, "impossible"),
    ],
)
def test_a_time_is_held_against_its_gpu(changed, verdict):
    assert row(**changed)["verdict"] == verdict


def test_rates_are_counted_alike_for_all():
    made = rates(pd.DataFrame([TARGET, TARGET | {"implementation": "plain"}, TARGET | {"gpu": None}]))
    assert made["tflops"].tolist() == pytest.approx([2 * 7 * CAUSAL * 64 * 16 / 4e9] * 3)
    assert made["share_of_peak"].tolist() == pytest.approx([0.4862, 0.4862, math.nan], abs=1e-4, nan_ok=True)


@pytest.fixture(scope="module")
def times():
    return printed.printed_times(published("attention"))


@pytest.fixture(scope="module")
def flash():
    return printed.printed_flash_times(published("flash_attention"))


def test_figures_in_the_reasons_are_those_of_the_tables(times, flash):
    twice = printed.printed_backwards(times).set_index(["head_dim", "sequence"])
    longest = twice.xs(16384, level="sequence")
    assert ((twice["ratio"] - 1).abs() > 0.1).sum() == 17, "most of 20"
    assert longest["apart_ms"].between(53.8, 58.4).all() and longest["passes"].between(21, 23).all()
    short = claims(attention).set_index("claim").loc["short_times"]
    assert (short["printed"], short["holds"]) == ("0.94 to 2.1×", None)
    assert short["recomputed"] == "64×; 0.38 to 5.5×", "ours do not follow the work, either"
    backward = printed.growth(times[times["phase"] == "backward"], 4096, 16384)["time"]
    assert (round(backward.min()), round(backward.max())) == (10, 20)
    shares = printed.printed_precisions(flash)[["share_of_fp32", "share_of_bf16"]].max()
    assert shares.tolist() == pytest.approx([0.302, 0.0214], abs=1e-3)


def test_launches_are_what_is_left_of_the_forward_times(times):
    forward = times[times["phase"] == "forward"]
    impossible = forward[forward["verdict"] == "impossible"].groupby("implementation").size()
    assert impossible.to_dict() == {"by_hand": 24, "compiled": 8}
    short = forward[forward["sequence"] <= 1024]
    assert len(short) == 24 and short["ms"].between(0.098, 0.166).all()
    assert (CACHE_BYTES, limits.spec(H100).tflops("fp32")) == (126 * 2**20, 67.0)


def test_memory_is_two_matrices_to_the_byte():
    memory = printed.printed_memory(published("attention"))
    fit = memory.iloc[0]
    assert fit[["squares", "tensors", "row_bytes", "fixed_mib"]].tolist() == pytest.approx([2, 4, 12, 64], abs=2e-3)
    assert memory.loc[1:, "left_mb"].abs().max() < 1e-3
    assert fit["left_mb"] == pytest.approx(-32 * 2**20 / 1e6, abs=0.01)


def test_a_gpu_gains_from_compiling_where_the_report_does_not():
    gains = compiled_gains(replay(attention.RECORDED["compiled"]), published("attention"))
    assert len(gains) == 40 and gains.notna().all(axis=None)
    backward = gains[(gains["phase"] == "backward") & (gains["sequence"] >= 4096)]
    assert (backward["gain"] > 1.05).all()
    longest = gains[(gains["phase"] == "forward") & (gains["sequence"] == 16384)]
    assert (longest["gain"] < 1.03).all() and (longest["printed_gain"] > 1.8).all()
    gained = gains[(gains["phase"] == "backward") & ((gains["printed_gain"] - 1).abs() > 0.03)]["printed_gain"]
    assert len(gained) == 7 and gained.between(1.07, 1.345).all()


def slower_forward(table):
    """Return the published times with forwards that take half of the backward's time, as they may."""
    return table.assign(forward_seconds=table["backward_seconds"] / 2)


def agreeing(table):
    eager = table["mode"] == "eager"
    keys = ["head_dim", "sequence"]
    second = table[eager & (table["problem"] == "torch_compile")].set_index(keys)["backward_seconds"]
    same = second.loc[pd.MultiIndex.from_frame(table[keys])].to_numpy()
    return table.assign(backward_seconds=table["backward_seconds"].where(~eager, same))


def one_matrix(table):
    rows = 8 * 4 * table["sequence"]
    held = rows * table["sequence"] + 4 * rows * table["head_dim"]
    return table.assign(memory_gb=(held / 1e9).where(table["memory_gb"].notna()))


def faster(factor, **where):
    def change(table):
        chosen = pd.Series(True, table.index)
        for name, value in where.items():
            chosen &= table[name] == value
        return table.assign(milliseconds=table["milliseconds"].mask(chosen, table["milliseconds"] / factor))

    return change


@pytest.mark.parametrize(
    ("name", "change", "verdicts"),
    [
        (
            "attention",
            slower_forward,
            {"forward_times": True, "forward_at_the_longest": True, "backward_twice": None},
        ),
        ("attention", agreeing, {"backward_twice": True, "memory_before_backward": True}),
        ("attention", one_matrix, {"memory_before_backward": False}),
        ("flash_attention", faster(200, implementation="triton", phase="forward"), {"waited_times": False}),
        ("flash_attention", faster(2, implementation="triton", precision="bfloat16"), {"precisions": False}),
        ("flash_attention", faster(4), {"precisions": None}),
        ("flash_attention", faster(0.1, implementation="triton"), {"triton_wins": False}),
    ],
)
def test_another_table_turns_the_verdict(edited_claims, name, change, verdicts):
    assert edited_claims(attention, name, change)["holds"].reindex([*verdicts]).to_dict() == verdicts


@pytest.mark.parametrize(
    ("printed_ratios", "our_ratios", "verdict"),
    [([1.0, 1.01], [4.8, 14.0], None), ([1.0, 1.01], [0.98, 1.05], True), ([1.0, 2.0], [1.0], False)],
)
def test_another_kernel_s_precisions_confirm_a_report_or_leave_it_open(printed_ratios, our_ratios, verdict):
    assert as_long(pd.Series(printed_ratios), pd.Series(our_ratios)) is verdict


@pytest.mark.parametrize(("seen", "verdict"), [(["ok", "impossible"], None), (["ok", "ok"], False)])
def test_launches_decide_nothing_about_compiling(seen, verdict):
    assert compares_launches(pd.DataFrame({"verdict": seen})) is verdict


def test_the_longest_forward_is_too_short_for_any_gpu(times):
    """16 384 positions, d = 64: the scores written and read, at the 8 TB/s of a B200 and with its cache."""
    claim = claims(attention).set_index("claim").loc["forward_at_the_longest"]
    least_ms = claim["recomputed"] * limits.spec(H100).hbm_gb_per_s / 8000
    assert least_ms == pytest.approx(2.1, abs=0.05) and claim["printed"] < least_ms / 9


def test_both_figures_of_the_precisions_are_times_of_float32_over_bfloat16():
    claim = claims(attention).set_index("claim").loc["precisions"]
    assert (claim["printed"], claim["recomputed"]) == ("1×", "4.8 to 14×")
    assert claim["holds"] is None
