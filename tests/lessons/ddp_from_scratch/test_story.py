"""Each verdict of lab 10 follows its table: said where it is true, its opposite where that is true."""

import pandas as pd
import pytest
from made import table
from made_ddp_from_scratch import buckets_run, equality_run, implementations_run

from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.theory import Overhead

NOTHING = pd.DataFrame({"strategy": []})


def test_all_right(tmp_path):
    assert "✔ **All classes" in ddp.all_right(ddp.cases(equality_run(tmp_path / "good"))).data
    wrong = ddp.all_right(ddp.cases(equality_run(tmp_path / "wrong", weight_error=0.1))).data
    assert "✘ **Not as one process: plain, tied" in wrong


@pytest.mark.parametrize(
    ("step_ms", "noise", "part"),
    [
        ({"none": 90, "naive": 130, "overlapped": 120, "bucketed": 100}, 0, "adds 40 ms; backward hides 25 % of it**"),
        (
            {"none": 90, "naive": 130, "overlapped": 135, "bucketed": 140},
            0,
            "hides nothing beyond noise.** Fewer calls save: *flat*",
        ),
        ({"none": 90, "naive": 130, "overlapped": 115, "bucketed": 120}, 10, "hides nothing beyond noise.**"),
        ({"none": 90, "naive": 95, "overlapped": 80, "bucketed": 85}, 10, "Naive adds no time beyond noise"),
    ],
)
def test_how_much_backward_hides(tmp_path, step_ms, noise, part):
    made = ddp.implementations(implementations_run(tmp_path / "run"))
    made["step_ms"] = made["strategy"].map(step_ms).fillna(100)
    made["spread_step_ms"], made["longer_ms"] = noise, made["step_ms"] - step_ms["none"]
    made["spread_longer_ms"] = 2 * noise
    assert part in ddp.what_is_hidden(made, NOTHING).data


def test_without_naive_nothing_is_said_of_hiding(tmp_path):
    few = ddp.implementations(implementations_run(tmp_path / "run", strategies=("flat", "bucketed")))
    assert "lacks naive" in ddp.what_is_hidden(few, NOTHING).data


@pytest.mark.parametrize(
    ("ratio", "spread", "part"),
    [(1.01, 0.05, "same time within noise"), (1.2, 0.05, "**Ours takes 1.20 ×"), (0.8, 0.05, "**Ours takes 0.80 ×")],
)
def test_beside_torch(ratio, spread, part):
    made = table(("bucketed", ratio, spread), columns=["strategy", "over_ddp", "spread_over_ddp"])
    assert part in ddp.beside_torch(made).data


def test_what_is_sent_early(tmp_path):
    said = ddp.sent_early(ddp.overlap(implementations_run(tmp_path / "run"))).data
    assert "send: overlapped, bucketed and torch's DDP. After it: naive and flat.**" in said and "✘" not in said
    wrong = ddp.sent_early(ddp.overlap(implementations_run(tmp_path / "wrong", extra_call=1))).data
    assert "✘ Calls that theory does not expect: naive" in wrong


@pytest.mark.parametrize(
    ("made", "part"),
    [
        ({}, "**Fastest: 115 MiB.** The formula's best, 121, is among them."),
        ({"line": Overhead(0.096, 2e-7, 1e14)}, "No size is best beyond noise"),
        ({"line": Overhead(0.096, 2e-5, float("inf"))}, "and the largest is among them**"),
        ({"line": Overhead(0.096, 0.0, 2e11)}, "and the smallest is among them**"),
        ({"buckets_mb": (10, 100)}, "Too few bucket sizes"),
    ],
)
def test_best_size(tmp_path, made, part):
    run = buckets_run(tmp_path / "run", **made)
    assert part in ddp.best_size(ddp.buckets(run), ddp.overhead(run)).data


def test_a_formula_whose_best_size_was_measured_slow_or_has_none(tmp_path):
    run = buckets_run(tmp_path / "run")
    far = ddp.overhead(run).assign(optimum_mib=900.0)
    assert "900, is **not among them**" in ddp.best_size(ddp.buckets(run), far).data
    none = ddp.overhead(run).assign(optimum_mib=float("nan"))
    assert "finds no best size" in ddp.best_size(ddp.buckets(run), none).data


def test_one_minute_says_what_each_run_shows(tmp_path):
    runs = {
        "implementations": implementations_run(tmp_path / "steps"),
        "buckets": buckets_run(tmp_path / "buckets"),
        "equality": equality_run(tmp_path / "equal"),
    }
    said = ddp.in_one_minute(runs, runs).data
    assert "22 ms shorter" in said and "115 MiB" not in said.partition("√")[0] and "14 of 14 cases" in said
