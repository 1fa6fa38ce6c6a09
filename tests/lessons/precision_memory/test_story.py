"""Lab 07's sentences say what the table shows, and the opposite where it shows the opposite."""

import pandas as pd
import pytest

from labkit.provenance import of_source
from lessons import precision_memory
from lessons.precision_memory.tables.memory import unbeaten
from lessons.precision_memory.theory.floats import WAYS, running
from lessons.precision_memory.theory.memory import ITEMS


def made(rows, **facts) -> pd.DataFrame:
    return of_source(pd.DataFrame(rows), "measured here, made by hand", **{"device": "cuda"} | facts)


def sums(**torchs) -> pd.DataFrame:
    rows = [
        {"way": way, "theory": running(way)[-1], "equal": torchs.get(way, True), "error": running(way)[-1] - 10}
        for way in WAYS
    ]
    return made(rows)


def test_sums():
    told = precision_memory.explain_sums(sums()).data
    assert "The bfloat16 sum stops at 4" in told and "torch gives the bits" in told
    told = precision_memory.explain_sums(sums(**{"float16 + float16": False})).data
    assert "**torch differs from the simulated rounding** in float16 + float16" in told


def casts(loss: str, device="cuda", norm="float32") -> pd.DataFrame:
    names = ("parameters", "logits", "LayerNorm's output", "loss")
    narrow = {"float16": ("float32", "float16", norm, loss), "bfloat16": ("float32", "bfloat16", norm, "float32")}
    return made(
        {"what": names, "float32": ["float32"] * 4} | {name: list(own) for name, own in narrow.items()}, device=device
    )


def norms(worst: float, finite: bool = True) -> pd.DataFrame:
    rows = [("float32", "mean", 1024.0, 1e-5, True), ("bfloat16", "mean", 1024.0, worst, finite)]
    rows += [("float16", "deviation", 256.0, float("nan"), False)]
    return made([dict(zip(("precision", "varied", "input_size", "error", "finite"), row, strict=True)) for row in rows])


def test_autocast():
    told = precision_memory.explain_autocast(casts("float32"), norms(0.15)).data
    assert "**The loss is float32**" in told and "needs float32 statistics all the same" in told
    assert "from a deviation of 256 on" in told and "On a CPU" not in told
    told = precision_memory.explain_autocast(casts("float16", "cpu", "float16"), norms(0.01)).data
    assert "**The loss is float16**" in told and "statistics are enough here" in told and "On a CPU" in told
    assert "overflow, too" in precision_memory.explain_autocast(casts("float32"), norms(0.1, finite=False)).data


def course(zero: tuple[float, float], skipped: int, last: float) -> pd.DataFrame:
    rows = []
    for way, share in (("float32", 0.0), ("float16", zero[0]), ("float16 scaled", zero[1])):
        for step in range(4):
            skips = way == "float16 scaled" and step < skipped
            loss = last if way == "float16" else 5.0
            rows.append(
                {"way": way, "step": step, "loss": loss, "scale": 2.0**16, "skipped": skips, "zero_share": share}
            )
    return made(rows)


def test_scaling():
    lossy = made([{"of": "weights"}], lost={"weights": 0.2}, subnormal={"weights": 0.3})
    told = precision_memory.explain_scaling(lossy, course((0.2, 0.0), 2, 5.5)).data
    assert "float16 rounds 20 % of the gradients of weights to 0" in told and "**scaling saves them.**" in told
    assert "2 of 4 steps overflow" in told and "at most 10 % (float16)" in told
    fine = made([{"of": "weights"}], lost={"weights": 0.0}, subnormal={"weights": 0.0})
    told = precision_memory.explain_scaling(fine, course((0.0, 0.0), 0, 5.0)).data
    assert "float16 loses less than 0.1 %" in told and "makes no difference" in told and "without an overflow" in told


def speed(gain: float, spread: float) -> pd.DataFrame:
    phases = ("forward", "backward")
    return made(
        [{"model": "xl", "phase": p, "precision": "bfloat16", "gain": gain, "spread_gain": spread} for p in phases]
    )


@pytest.mark.parametrize(
    ("gain", "spread", "words"),
    [(2.0, 0.1, "faster for xl"), (0.5, 0.1, "**slower** for xl"), (1.05, 0.1, "within noise")],
)
def test_speed(gain, spread, words):
    assert words in precision_memory.explain_speed(speed(gain, spread)).data


def test_tf32():
    both = [speed(2.0, 0.1), speed(3.0, 0.1).assign(precision="tf32")]
    assert "gains up to 3.0× for xl in forward" in precision_memory.explain_speed(made(pd.concat(both))).data
    slower = [speed(2.0, 0.1), speed(1.05, 0.1).assign(precision="tf32")]
    assert "TF32 is within noise" in precision_memory.explain_speed(made(pd.concat(slower))).data
    assert "TF32" not in precision_memory.explain_speed(speed(2.0, 0.1)).data


def test_the_published_times():
    steps = precision_memory.published_speed(precision_memory_published())
    told = precision_memory.explain_speed(speed(2, 0.1), steps).data
    assert "5 of 10 times are *slower*" in told and "2.7b gains 3.0×" in told


def precision_memory_published():
    from labkit import published

    return published("transformer_steps")


def held(unexplained: float, first: float, steady: float) -> pd.DataFrame:
    rows = []
    for sequence in (128, 256):
        for phase, peak, moment in (("first step", first, "update"), ("steady step", steady, "loss")):
            row = {"precision": "float32", "sequence": sequence, "phase": phase, "moment": moment, "peak": peak}
            rows.append(row | dict.fromkeys(ITEMS, 0.0) | {"unexplained_share": unexplained})
    return made(rows)


def test_memory():
    told = precision_memory.explain_memory(held(0.02, 50_000, 70_000)).data
    assert (
        "explains every peak" in told and "the same at contexts 128 and 256" in told and "more than the first" in told
    )
    told = precision_memory.explain_memory(held(0.2, 70_000, 70_000)).data
    assert "**does not explain every peak**" in told and "more than the first" not in told


def test_memory_of_mixed_precision():
    plain = held(0.0, 50_000, 70_000)
    mixed = plain.assign(precision="bfloat16", peak=plain["peak"] * [1.1, 0.8, 1.1, 0.8], copies=6000.0)
    told = precision_memory.explain_memory(made(pd.concat([plain, mixed], ignore_index=True))).data
    assert "raises 2 of 4 peaks, by up to 10 %" in told and "lowers 2, by up to 20 %" in told


def lever(name, peak, ms) -> dict:
    return {"lever": name, "peak_mib": peak, "step_ms": ms, "spread_step_ms": 0.1, "status": "ok"}


def test_levers():
    table = pd.DataFrame(
        [lever("plain", 100.0, 10.0), lever("a", 50.0, 12.0), lever("b", 100.0, 11.0), lever("c", None, None)]
    )
    table["peak_ratio"], table["time_ratio"] = table["peak_mib"] / 100, table["step_ms"] / 10
    table["best"] = table["best_exact"] = unbeaten(table)
    assert table["best"].to_list() == [True, True, False, False]
    table.loc[3, "status"] = "out of memory"
    told = precision_memory.explain_levers(made(table)).data
    assert "No lever beats *a* (50 % of the memory, 120 % of the time)" in told
    assert "do not lower the peak: b" in told and "Not measured: c (out of memory)" in told


def test_the_largest_allocation():
    class Plan:
        hidden, inner, samples, sequence = 256, 1024, 4, 128

    rows = [{"size_mib": 1.0, "count": 3, "phase": "backward", "line": "a.py:1", "source": "x"}]
    told = precision_memory.explain_timeline([made([])], made(rows), Plan).data
    assert "exactly one float32 matrix of the perceptron" in told and "takes 512 KiB" in told
    told = precision_memory.explain_timeline([made([])], made([rows[0] | {"size_mib": 3.0}]), Plan).data
    assert "not the size of a float32 matrix" in told
