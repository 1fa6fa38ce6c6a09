"""Each verdict of lab 10 follows its table: said where it is true, its opposite where that is true."""

import pandas as pd
import pytest
from made_ddp_from_scratch import buckets_run, equality_run, implementations_run

from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.theory import Overhead

NOTHING = pd.DataFrame({"strategy": ["none"]})


def hiding(*tables: pd.DataFrame) -> str:
    return ddp.what_is_hidden(*((made, NOTHING) for made in tables)).data


def sizes(*runs: tuple) -> str:
    return ddp.best_size(*runs).data


def test_all_right(tmp_path):
    assert "✔ **All classes" in ddp.all_right(ddp.cases(equality_run(tmp_path / "good"))).data
    wrong = ddp.all_right(ddp.cases(equality_run(tmp_path / "wrong", weight_error=0.1))).data
    assert "✘ **Not as one process: plain, tied" in wrong


@pytest.mark.parametrize(
    ("step_ms", "noise", "part"),
    [
        (
            {"none": 90, "naive": 130, "overlapped": 120, "bucketed": 100},
            0,
            "adds 40 ms; backward hides 25 % of it**, with the class *overlapped*. Backward takes 12 ms longer",
        ),
        (
            {"none": 90, "naive": 130, "overlapped": 135, "bucketed": 140},
            0,
            "hides nothing beyond noise.** Fewer calls save: *flat*",
        ),
        (
            {"none": 90, "naive": 130, "overlapped": 120, "bucketed": 110},
            0,
            "*bucketed* takes longer than *flat*, beyond noise.",
        ),
        ({"none": 90, "naive": 130, "overlapped": 109, "bucketed": 110}, 10, "*bucketed* hides nothing beyond noise."),
        ({"none": 90, "naive": 130, "overlapped": 115, "bucketed": 120}, 10, "hides nothing beyond noise.**"),
        ({"none": 90, "naive": 95, "overlapped": 80, "bucketed": 85}, 10, "cannot say how much backward hides.**"),
        ({"none": 90, "naive": 95, "overlapped": 153, "bucketed": 100}, 10, "*overlapped* takes 58 ms longer than"),
    ],
)
def test_how_much_backward_hides(tmp_path, step_ms, noise, part):
    made = ddp.implementations(implementations_run(tmp_path / "run"))
    made["step_ms"] = made["strategy"].map(step_ms).fillna(100)
    made["spread_step_ms"], made["longer_ms"] = noise, made["step_ms"] - step_ms["none"]
    made["spread_longer_ms"] = 2 * noise
    made["backward_ms"] = made["strategy"].map({"none": 60.0}).fillna(72.0)
    assert part in hiding(made)


def test_times_of_cpus_are_not_judged(tmp_path):
    here = ddp.implementations(implementations_run(tmp_path / "here", device="cpu"))
    there = ddp.implementations(implementations_run(tmp_path / "there", step_ms={"naive": 130.0}))
    assert "adds 40 ms" in hiding(here, there) and "say nothing about GPUs" in hiding(here, there)
    assert "adds 32 ms" in hiding(there.assign(step_ms=there["step_ms"].replace(130.0, 122.0), longer_ms=32.0), here)


def test_without_naive_nothing_is_said_of_hiding(tmp_path):
    few = ddp.implementations(implementations_run(tmp_path / "run", strategies=("flat", "bucketed")))
    assert "lacks naive" in hiding(few)


def test_what_is_sent_early(tmp_path):
    said = ddp.sent_early(ddp.overlap(implementations_run(tmp_path / "run"))).data
    assert "send: overlapped, bucketed and torch's DDP. After it: naive and flat.**" in said and "✘" not in said
    wrong = ddp.sent_early(ddp.overlap(implementations_run(tmp_path / "wrong", extra_call=1))).data
    assert "✘ Calls that theory does not expect: naive" in wrong


@pytest.mark.parametrize(
    ("made", "part"),
    [
        ({}, "fastest within noise: 115 MiB**. The formula's best, 121, is among them."),
        ({"line": Overhead(0.096, 2e-7, 1e14)}, "no size from 23 to 3 811 MiB is fastest beyond noise**"),
        ({"line": Overhead(0.096, 2e-5, float("inf"))}, "to 3 811 MiB**. The formula finds no best size"),
        ({"line": Overhead(0.096, 0.0, 2e11)}, "finds no best size"),
        ({"line": Overhead(0.096, 1e-4, 1.4e12)}, "no best size: its w is above the links' 478 GB/s"),
        ({"buckets_mb": (10, 100)}, "too few bucket sizes"),
    ],
)
def test_best_size(tmp_path, made, part):
    run = buckets_run(tmp_path / "run", **made)
    swept = ddp.buckets(run), ddp.overhead(run)
    assert part in sizes(swept) and part in sizes(swept, swept)


def test_a_formula_whose_best_size_was_measured_slow(tmp_path):
    run = buckets_run(tmp_path / "run")
    assert "900, is **not among them**" in sizes((ddp.buckets(run), ddp.overhead(run).assign(optimum_mib=900.0)))


def test_sizes_on_cpus_are_not_judged(tmp_path):
    here, there = (buckets_run(tmp_path / device, device=device) for device in ("cpu", "cuda"))
    other = ddp.overhead(here).assign(optimum_mib=900.0)
    assert "121, is among them" in sizes((ddp.buckets(here), other), (ddp.buckets(there), ddp.overhead(there)))


def test_one_minute_says_what_each_run_shows(tmp_path):
    runs = {
        "implementations": implementations_run(tmp_path / "steps"),
        "buckets": buckets_run(tmp_path / "buckets"),
        "equality": equality_run(tmp_path / "equal"),
    }
    on_cpus = {
        "implementations": implementations_run(tmp_path / "cpu steps", device="cpu"),
        "buckets": buckets_run(tmp_path / "cpu buckets", device="cpu"),
        "equality": runs["equality"],
    }
    said = ddp.in_one_minute(on_cpus, runs).data
    assert said.count("CPUs: not compared") == 2
    assert "22 ms shorter" in said and "115 MiB" not in said.partition("√")[0] and "14 of 14 cases" in said
    assert "| fastest within noise: 115 MiB |" in said
    runs["buckets"] = buckets_run(tmp_path / "flat", line=Overhead(0.096, 2e-7, 1e14))
    assert "| no size from 23 to 3 811 MiB is fastest beyond noise |" in ddp.in_one_minute(on_cpus, runs).data
