"""The published attention figures: which times no H100 allows, and that each doubt is said where it holds only."""

import math

import figures
import numpy as np
import pandas as pd
import pytest
from figures import checked

from labkit.labs.attention.charts.speed import attention_chart
from labkit.labs.attention.story.reports import doubt_reports
from labkit.labs.attention.tables import reading
from labkit.labs.attention.tables.speed import CACHE_BYTES, physics, rates
from labkit.tables.published import published

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
ATTENTION, FLASH = published("attention"), published("flash_attention")
CAUSAL = 16384 * 16385 / 2


def row(**changed):
    """Give what physics makes of one row: the lab's target, or another."""
    return physics(pd.DataFrame([TARGET | changed])).iloc[0]


@pytest.fixture(scope="module")
def tables():
    return reading.everything(ATTENTION, FLASH)


def story(attention=ATTENTION, flash=FLASH):
    return doubt_reports(**reading.everything(attention, flash)).data


def says(text, part, unsaid):
    assert part in text, text
    assert unsaid not in text, text


def attention(change):
    """Give the published attention.csv with columns replaced by what `change` makes of it."""
    made = ATTENTION.assign(**change(ATTENTION))
    made.attrs = dict(ATTENTION.attrs)
    return made


def flash(change, **where):
    """Give the published flash_attention.csv with times changed by a function in the rows that `where` names."""
    made = FLASH.copy()
    chosen = np.logical_and.reduce([made[name].isin(np.atleast_1d(value)) for name, value in where.items()])
    made["milliseconds"] = made["milliseconds"].mask(chosen, change(made))
    return made


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


def test_tables_are_tidy_and_name_their_source(tables):
    for table in tables.values():
        assert table.attrs["source"] == "published: CS336 write-up"
        assert table.attrs["small"] is False
        assert list(table.index) == list(range(len(table)))
        assert table.columns.nlevels == 1


def test_launches_that_were_not_waited_for_are_impossible(tables):
    times = tables["times"]
    wrong = times[times["verdict"] == "impossible"]
    assert (len(times), len(wrong), set(wrong["phase"])) == (120, 32, {"forward"})
    assert wrong.groupby("implementation").size().to_dict() == {"by_hand": 24, "compiled": 8}
    assert set(wrong.loc[wrong["implementation"] == "by_hand", "sequence"]) == {4096, 8192, 16384}
    assert wrong["share_of_limit"].max() == pytest.approx(23.7, abs=0.1)
    assert set(tables["flash"]["verdict"]) == {"ok"}


def test_printed_forward_does_not_grow(tables):
    table = tables["growth"].set_index(["last", "phase"])
    assert table.loc[4096, "work"].unique().tolist() == [256]
    assert table.loc[(4096, "forward"), "time"].between(0.88, 1.07).all()
    assert (
        table.loc[(16384, "forward"), "exponent"].max() < 0.4 < 1.6 < table.loc[(16384, "backward"), "exponent"].min()
    )
    short = tables["flash_growth"].query("last == 1024")
    assert short["time"].between(0.93, 2.1).all() and set(short["work"]) == {64}


def test_backward_is_printed_twice_and_differs(tables):
    table = tables["backwards"].set_index(["head_dim", "sequence"])
    assert table.loc[(32, 8192), "ratio"] == pytest.approx(2.231, abs=1e-3)
    assert ((table["ratio"] - 1).abs() > 0.1).sum() == 17 and table["same"].sum() == 13
    longest = table.xs(16384, level="sequence")
    assert longest["apart_ms"].tolist() == pytest.approx([55.422, 58.362, 56.011, 53.861])
    assert longest["passes"].between(21, 22.8).all()


def test_memory_is_two_matrices_to_the_byte(tables):
    table = tables["memory"]
    fit = table.iloc[0]
    assert fit[["squares", "tensors", "row_bytes", "fixed_mib"]].tolist() == pytest.approx([2, 4, 12, 64], abs=2e-3)
    assert table.loc[1:, "left_mb"].abs().max() < 1e-3
    assert fit["left_mb"] == pytest.approx(-32 * 2**20 / 1e6, abs=0.01)
    assert fit["holds"] == "by_hand"


def test_float32_shows_no_tensor_cores(tables):
    table = tables["precisions"].set_index(["implementation", "phase", "sequence", "head_dim"])
    assert len(table) == 72 and table["share_of_fp32"].max() == pytest.approx(0.3023, abs=1e-4)
    assert table.loc[("flash", "forward", 32768, 128), "ratio"] == pytest.approx(1.00133, abs=1e-5)
    assert table["share_of_bf16"].max() == pytest.approx(0.0214, abs=1e-4)


def test_what_triton_wins_and_where_its_time_goes(tables):
    won = tables["speedups"].query("phase == 'forward'").groupby("sequence")["speedup"].agg(["min", "max"])
    assert won.loc[1024, "max"] < 1 < won.loc[8192, "min"] and won.loc[32768, "max"] == pytest.approx(5.2, abs=0.01)
    parts = tables["parts"].set_index("sequence")["share"]
    assert parts[[128, 1024]].max() < 0.85 < 0.92 < parts[[8192, 32768]].min() < 1.1
    fixed = tables["head_dims"].set_index(["implementation", "phase", "precision"])
    assert fixed.loc[("flash", "backward", "float32"), "share"] == pytest.approx(0.473, abs=1e-3)
    assert fixed.loc[("flash", "forward", "float32"), "share"] == pytest.approx(0.145, abs=1e-3)


def test_every_doubt_is_said_briefly():
    bullets = (said := story()).splitlines()
    assert len(bullets) == 8
    assert max(len(bullet.split()) for bullet in bullets) <= 70
    for part in (
        "**Impossible on an H100** are 32 of 60 forward and 0 of 60 backward times in attention.csv, 0 of 144 in flash",
        "reading and writing alone takes 5.05 ms; forward is printed as 0.213.",
        "work grows 16×, backward times 10 to 20× and forward times 1.1 to 1.6×; from 256 to 4 096 it grows 256×,",
        "forward 0.88 to 1.1×. **Forward was launched, not waited for.**",
        "differs by more than 10 % in 17 of 20 settings (0.95 to 2.2×): **they did not time the same**. At 16 384",
        "53.9 to 58.4 ms at every head dimension, as 21 to 23 passes over an N×N matrix take",
        "13 of 20 backwards take eager's time within 3 %, as if not compiled; forward gains 1.3 to 2.0×",
        "**of launching time.**",
        "is 2.00 N×N matrices, 4.00 N×d tensors, 12.0 bytes a row and 64.0 MiB",
        "**Held is exp(S − max) and P, as of a softmax written by hand.**",
        "At 32 768 Triton's forward takes 1.0× bfloat16's time in float32: **bfloat16 gains nothing.**",
        "20.3 TFLOP/s, is 30 % of its peak without tensor cores (TF32's: 4.1 %): **that neither shows nor excludes",
        "Bfloat16's best is 2.1 % of its peak.",
        "1.3 to 5.2× as fast as PyTorch's beyond 1 024; up to there it loses 10 of 12 (0.49 to 1.2×).",
        "make 60 to 85 % of both: **launches.** 65 536, where plain's matrices take 68.7 GB, is missing.",
        "47 to 72 % of Triton's backward does not depend on the head dimension (forward: 14 %,",
        "PyTorch's backward: 65 to 76 %) and takes",
        "as long as 19 to 20 passes over an N×N matrix: **like matrices, not tiles.**",
    ):
        assert part in said, said


def waited(made):
    return {"forward_seconds": made["backward_seconds"] / 2}


def agreeing(made):
    keys = ["head_dim", "sequence"]
    other = made[(made["problem"] == "torch_compile") & (made["mode"] == "eager")].set_index(keys)["backward_seconds"]
    return {"backward_seconds": other.loc[pd.MultiIndex.from_frame(made[keys])].to_numpy()}


def doubled(made):
    return {
        "backward_seconds": agreeing(made)["backward_seconds"] * made["problem"].map({"pytorch_attention": 2}).fillna(1)
    }


def compiled(made):
    return {"backward_seconds": made["backward_seconds"] / made["mode"].map({"eager": 1, "compiled": 2})}


def holding(squares):
    def memory(made):
        rows = 8 * 4 * made["sequence"]
        return {
            "memory_gb": (squares * rows * made["sequence"] + 4 * rows * made["head_dim"]).where(
                made["memory_gb"].notna()
            )
            / 1e9
        }

    return memory


@pytest.mark.parametrize(
    ("change", "part", "unsaid"),
    [
        (waited, "An H100 allows every printed time.", "mpossible"),
        (waited, "forward times 10 to 20×: **all follow the work.**", "launched"),
        (waited, "as if not compiled; forward gains 0.99 to 1.3×.", "launching"),
        (agreeing, "printed twice, agrees within 10 % in every setting.", "not time the same"),
        (doubled, "in 20 of 20 settings (2.0×): **they did not time the same**.\n", "at every head dimension"),
        (compiled, "Compiling changes every backward (2.0 to 2.7×)", "not compiled"),
        (holding(1), "is 1.00 N×N matrices, 4.00 N×d tensors", "by hand"),
        (holding(1), "**Held is P alone, as of a fused softmax.**", "by hand"),
        (holding(1.5), "holds 1.50 N×N matrices, as no implementation here.", "Held is"),
    ],
)
def test_where_attention_is_another_the_opposite_is_said(change, part, unsaid):
    says(story(attention=attention(change)), part, unsaid)


TRITON = {"implementation": "triton"}
LONG = TRITON | {"sequence": 32768}


def faster(times):
    return lambda made: made["milliseconds"] / times


def as_work(fixed):
    """Give times that go with N² and with the head dimension beyond a fixed part; PyTorch's are twice Triton's."""
    return lambda made: (
        made["sequence"] ** 2
        * (made["head_dim"] + fixed)
        * 1e-8
        * made["phase"].map({"forward": 1, "backward": 2.5, "forward_backward": 3.5})
        * made["implementation"].map({"triton": 1, "pytorch": 2})
    )


def longer(made):
    return pd.concat([made, made[made["sequence"] == 32768].assign(sequence=65536)], ignore_index=True)


@pytest.mark.parametrize(
    ("change", "where", "part", "unsaid"),
    [
        (faster(200), LONG | {"head_dim": 128, "phase": "forward"}, "attention.csv, 2 of 144 in flash", "0 of 144"),
        (faster(2), LONG | {"precision": "bfloat16"}, "float32: bfloat16 gains.", "gains nothing"),
        (
            faster(4),
            LONG | {"precision": "float32"},
            "81.0 TFLOP/s, is more than it has without tensor cores: **TF32",
            "neither shows",
        ),
        (faster(3), TRITON, "Triton's forward is 1.5 to 16× as fast as PyTorch's. From", "loses"),
        (faster(0.1), TRITON, "Triton wins nowhere; up to there it loses 24 of 24 (0.049 to 0.52×)", "beyond"),
        (as_work(4), {}, "Triton's forward is 2.0× as fast as PyTorch's. 65 536", "launches"),
        (as_work(4), {}, "(forward: 3.0 %): both go with the products.", "not tiles"),
    ],
)
def test_where_triton_is_another_the_opposite_is_said(change, where, part, unsaid):
    says(story(flash=flash(change, **where or {"report": "cs336-a2"})), part, unsaid)


def test_the_longest_sequence_may_have_been_printed():
    made = longer(FLASH)
    made.attrs = dict(FLASH.attrs)
    says(story(flash=made), "**launches.**\n", "missing")


def test_charts_mark_what_is_impossible(tables, monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "TFLOP/s", "tokens"))
    for head_dim, rings in ((16, (7, 0)), (64, (8, 0)), (128, (9, 0))):
        figure = checked(attention_chart(tables["times"], head_dim))
        found = [next(line for line in ax.lines if line.get_label() == "impossible") for ax in figure.axes]
        assert tuple(len(line.get_xdata()) for line in found) == rings
