"""Each sentence of lab 03 follows its table: said where the claim holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import said, table

from lessons import pipeline

NAN = float("nan")


def gpus(*rates, mode="streaming", limit=2.0, spread=1.0):
    rows = [(mode, 2 * (i + 1), r, spread, r / rates[0], limit if i else 1.0) for i, r in enumerate(rates)]
    made = table(*rows, columns=["mode", "ranks", "samples_per_s", "spread_samples_per_s", "speedup", "limit"])
    return made.assign(share_of_limit=made["speedup"] / made["limit"])


@pytest.mark.parametrize(
    ("rates", "parts", "unsaid"),
    [
        (gpus(844, 1656), ("Streaming: 1.96× from 2 to 4 GPUs, near the 2.00× that the mode allows",), "below"),
        (gpus(844, 1200), ("well below the 2.00×",), "near"),
        (gpus(844, 1800), ("**above** the 2.00×",), "near"),
        (gpus(844, 860, spread=40), ("changes by less than the noise",), "allows"),
        (gpus(844), ("Only one number of GPUs",), "allows"),
    ],
)
def test_gpus(rates, parts, unsaid):
    said(pipeline.explain_gpus(rates), parts, unsaid)


def counts(mode, rates, spread=1.0):
    rows = [(mode, m, rate, spread) for m, rate in rates.items()]
    return table(*rows, columns=["mode", "micro_batches", "samples_per_s", "spread_samples_per_s"])


STREAM, TRAIN = {1: 1800, 4: 1600, 16: 1400}, {1: 150, 4: 310, 16: 372, 64: 150}


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            pd.concat([counts("streaming", STREAM), counts("training", TRAIN)]),
            (
                "**Streaming**: best with 1, 1 800 samples/s; more make each piece smaller.",
                "**Training**: best with 16, 372 samples/s; fewer leave a larger bubble, more make each piece smaller.",
                "In the stream more micro-batches only hurt; in training they help first",
            ),
            "within noise",
        ),
        (
            pd.concat([counts("streaming", {1: 1815, 2: 1835, 4: 1600}), counts("training", TRAIN)]),
            ("only hurt from 2 on; in training they help first",),
            "only hurt;",
        ),
        (counts("training", {4: 310, 8: 370, 16: 372}, spread=2), ("best with 16 (8 is within noise",), "only hurt"),
        (counts("training", {4: 310, 8: 370}), ("samples/s; fewer leave a larger bubble.",), "smaller"),
        (
            counts("training", {4: 310, 8: 311, 16: 312}),
            ("best with 16 (4 and 8 are within noise", "312 samples/s."),
            ";",
        ),
        (counts("streaming", {1: 1800, 2: 1835, 4: 1600}), ("fewer are slower, too, more",), "larger bubble"),
        (pd.concat([counts("streaming", {1: 1, 4: 9}), counts("training", {1: 9, 4: 1})]), ("with 4",), "only hurt"),
        (pd.concat([counts("streaming", {1: 9, 4: 1}), counts("training", {1: 8, 4: 9}, 2)]), ("with 4",), "only hurt"),
        (counts("training", {4: 310}), ("One number of micro-batches",), "best with"),
    ],
)
def test_micro_batches(made, parts, unsaid):
    made.attrs["small"] = False
    said(pipeline.explain_micro_batches(made), parts, unsaid)


def bubbles(*rows):
    names = [
        "schedule",
        "step_ms",
        "residual",
        "bubble_formula",
        "bubble_stages",
        "bubble_simulated",
        "bubble_measured",
    ]
    return table(*rows, columns=names).assign(micro_batches=8)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            bubbles(("gpipe", 170, 0.01, 0.27, 0.28, 0.283, 0.284), ("zero_bubble", 150, -0.04, 0.1, 0.11, 0.12, 0.15)),
            (
                "in 2 of 2 cases",
                "| GPipe, 8 micro-batches | 170 ms | 27.0 % | 28.0 % | 28.3 % | 28.4 % |",
                "Smallest measured bubble: zero bubble, 15 %",
                "It is also the fastest",
                "comes from unequal stages for GPipe and what the simulator leaves out for zero bubble",
            ),
            "misses by more",
        ),
        (
            bubbles(("gpipe", 140, 0.01, 0.27, 0.271, 0.28, 0.28), ("interleaved", 190, -0.23, 0.1, 0.1, 0.1, 0.2)),
            ("in 1 of 2 cases", "more for interleaved 1F1B (23 %)", "**Yet GPipe is faster**", "transfers for GPipe"),
            "also the fastest",
        ),
        (bubbles(("gpipe", 140, 0.01, 0.27, 0.27, 0.26, 0.25)), ("in 1 of 1",), "gap"),
    ],
)
def test_bubbles(made, parts, unsaid):
    said(pipeline.explain_bubbles(made), parts, unsaid)


def splits(*rows):
    return table(*rows, columns=["split", "ratio", "forecast_ratio", "error"], even="3-3-3-3")


RANKED = table(("3-3-3-3", 1.0), ("9-1-1-1", 1.8), columns=["split", "times_best"])
EVEN = ("3-3-3-3", 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("made", "ranked", "parts", "unsaid"),
    [
        (
            splits(EVEN, ("6-2-2-2", 1.417, 1.4175, 0.0004)),
            RANKED,
            (
                "6-2-2-2 takes 1.42× the step of 3-3-3-3; the forecast, 1.42×, came true",
                "finds 3-3-3-3 fastest, the e",
                "the worst, 9-1-1-1, takes 1.8×",
            ),
            "did not",
        ),
        (splits(EVEN, ("6-2-2-2", 1.2, 1.4, 0.17)), None, ("**did not come true** (off by 17 %)",), "came true ("),
        (splits(EVEN), RANKED.iloc[::-1], ("finds 9-1-1-1 fastest, not 3-3-3-3",), "the even one"),
        (splits(EVEN), None, ("Only one split was measured",), "forecast"),
    ],
)
def test_splits(made, ranked, parts, unsaid):
    said(pipeline.explain_splits(made, ranked), parts, unsaid)


def test_splits_say_how_far_the_ranks_differ():
    rows = [("3-3-3-3", "training", 0.011, 0.034), ("6-2-2-2", "training", 0.58, 0.56), ("6-2-2-2", "streaming", 9, 9)]
    balance = table(*rows, columns=["split", "mode", "stage_time_cv", "memory_cv"])
    made = splits(EVEN).assign(mode="training")
    both = "(std over mean): 3-3-3-3 by 1.1 % and 3.4 % and 6-2-2-2 by 58 % and 56 %."
    said(pipeline.explain_splits(made, None, balance), (both,), "900")
    said(pipeline.explain_splits(made, None, balance.assign(memory_cv=NAN)), ("Only one split",), "differ")


def equal(*flags):
    rows = [("right", "gpipe", "2-2", 4, 1e-6, 1e-7, 2e-6, flag) for flag in flags]
    errors = ["output_error", "loss_error", "gradient_error"]
    return table(*rows, columns=["variant", "schedule", "split", "micro_batches", *errors, "equal"])


def test_equality():
    said(pipeline.explain_equality(equal(True, True)), ("All 2 pipelines gave", "2e-06"), "something else")
    said(pipeline.explain_equality(equal(True, False)), ("**1 of 2 pipelines computed something else**: GPipe",), "All")


def as_reported(*, streaming=900.0, spread=1.0, mib=(5000.0, 9000.0)):
    """Return rates and memory of a stream, with fused attention at 1 000 samples/s, and of training, at 300."""
    rows = [
        ("fused", 0.0, "streaming", 1000.0, spread, NAN),
        ("fused", 0.0, "training", 300.0, 1.0, mib[0]),
        ("plain", 0.1, "streaming", streaming, spread, NAN),
        ("plain", 0.1, "training", 150.0, 1.0, mib[1]),
    ]
    names = ["attention", "dropout", "mode", "samples_per_s", "spread_samples_per_s", "mib_per_gpu"]
    return table(*rows, columns=names)


def test_the_reports_model():
    explain = pipeline.explain_as_reported
    said(explain(as_reported()), ("Streaming**: 90 % of", "Training**: 50 % of the rate, and 1.8× the"), "within noise")
    said(explain(as_reported(spread=60.0)), ("Streaming**: the same rate, within noise.", "| plain | 0.1 |"), "90 %")
    said(explain(as_reported(mib=(NAN, NAN))), ("Training**: 50 % of the rate.",), "MiB")
    missing = as_reported(streaming=NAN)
    said(explain(missing), ("Training**: 50 %",), "Streaming**")
    said(explain(as_reported().iloc[:2]), ("Not all settings were measured",), "compared with")


def test_precisions():
    rows = [("training", "float32", 300.0, 1.0, 0.3), ("training", "tf32", 810.0, 9.0, 0.1)]
    names = ["mode", "precision", "samples_per_s", "spread_samples_per_s", "share_of_limit"]
    made = table(*rows, columns=names)
    used = "datasheet's rate: float32 30 % and tf32 10 %"
    said(pipeline.explain_precisions(made), ("as fast as float32: tf32 2.7×.", f"{used}: on faster cores"), "Only one")
    alike = made.assign(share_of_limit=[0.3, 0.29])
    said(pipeline.explain_precisions(alike), ("tf32 29 %.",), "on faster cores")
    said(pipeline.explain_precisions(made.assign(share_of_limit=NAN)), ("tf32 2.7×.",), "datasheet")
    said(pipeline.explain_precisions(made.assign(spread_samples_per_s=600.0)), ("tf32 is within noise",), "2.7×")
    said(pipeline.explain_precisions(made.iloc[:1]), ("Only one precision",), "as fast as")
