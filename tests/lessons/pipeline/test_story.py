"""Each verdict of lab 03 follows its tables: said where it holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import said, table

from lessons import pipeline
from lessons.pipeline import story


def equal(*flags):
    names = ["gpipe", "1f1b", "gpipe"]
    rows = [(names[i], i == 2, flag) for i, flag in enumerate(flags)]
    return table(*rows, columns=["schedule", "by_hand", "equal"])


def test_same_result():
    said(pipeline.same_result(equal(True, True, True)), ("✔", "torch's GPipe, torch's 1F1B and the loop above"), "✘")
    said(pipeline.same_result(equal(True, True, False)), ("✘", "whole model's**: the loop above."), "torch's")


def gains(streaming, fenced, limit=1.43):
    rows = [("streaming", 2, 1.0, 1.0), ("streaming", 4, streaming, 2.0), ("fenced", 2, 1.0, 1.0)]
    columns = ["mode", "ranks", "speedup", "limit"]
    made = table(*rows, ("fenced", 4, fenced, limit), columns=columns)
    return made.assign(share_of_limit=made["speedup"] / made["limit"])


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (gains(1.96, 1.41), ("gains more than fenced steps do: 1.96 and 1.41 times", "keeps to its limit"), "exceeds"),
        (gains(1.3, 1.41), ("gains **no more** than",), "gains more"),
        (gains(1.96, 1.60), ("**exceeds** its limit",), "keeps"),
    ],
)
def test_streams_gain(made, parts, unsaid):
    said(pipeline.streams_gain(made, made), parts, unsaid)


def peaks_of(per_layer):
    """Return peaks of 12 layers on 2, 3 and 4 ranks; a rank also holds 700 (first), 400 (inner) or 300 MiB (last)."""
    rows = [("streaming", 4, 0, 3, 9e9)]
    for ranks in (2, 3, 4):
        layers = 12 // ranks
        rest = [700.0, *[400.0] * (ranks - 2), 300.0]
        rows += [("training", ranks, rank, layers, layers * per_layer + rest[rank]) for rank in range(ranks)]
    return table(*rows, columns=["mode", "ranks", "rank", "rank_layers", "peak_mib"])


def test_memory_falls():
    parts = ("With 4 stages", "needs 55 % of", "with 2**", "first | 1 000 | 700.0", "inner | 1 000 | 400.0", "last | ")
    said(pipeline.memory_falls(peaks_of(1000.0)), parts, "did not")
    said(pipeline.memory_falls(peaks_of(0.0)), ("did not lower",), "%")


def schedule_peaks(least):
    peaks = {"gpipe": [5000.0, 4000.0], "1f1b": [least, 1000.0], "zero_bubble": [3000.0, 4500.0]}
    rows = [(name, rank, peak) for name, ranks in peaks.items() for rank, peak in enumerate(ranks)]
    return table(*rows, columns=["schedule", "rank", "peak_mib"])


def test_schedules_memory():
    parts = ("needs 60 % of GPipe's memory", "others up to 90 %", "| 1F1B | 3 000 | 1 000 |")
    said(pipeline.schedules_memory(schedule_peaks(3000.0)), parts, "did not")
    said(pipeline.schedules_memory(schedule_peaks(5000.0)), ("1F1B did not lower",), "needs")


def bubbles(*measured):
    rows = [(name, 0.27, 0.28, 0.28, 0.28, m) for name, m in zip(("gpipe", "interleaved"), measured, strict=True)]
    names = ["formula", "stages", "transfers", "simulated", "measured"]
    return table(*rows, columns=["schedule", *(f"bubble_{name}" for name in names)]).assign(
        step_ms=46.0, logged_ms=64.0
    )


def test_bubbles_met():
    met = bubbles(0.29, 0.26)
    parts = ("within 2.0 points", "in every schedule", "| 46.0 | 64.0 |")
    said(pipeline.bubbles_met(met, met), parts, ("misses", "Here"))
    missed = bubbles(0.29, 0.40)
    said(pipeline.bubbles_met(missed, missed), ("misses the measured one for interleaved 1F1B.",), "within")
    near, far = (table_here(bubbles(0.29, share)) for share in (0.26, 0.60))
    said(
        pipeline.bubbles_met(near, met),
        ("within 2.0 points", "no bubble is measured more than 5 points above"),
        "cores",
    )
    said(pipeline.bubbles_met(far, met), ("within 2.0 points", "up to 32 points larger", "share cores"), "above")


def table_here(made, on_cpu=True):
    """Return a table as if a run on this machine had measured it."""
    made.attrs |= {"source": "measured here", "on_cpu": on_cpu}
    return made


def waiting(measured, before, rank):
    rows = [("measured", measured), (pipeline.BEFORE_USE, before), (pipeline.ONE_QUEUE, rank)]
    facts = {"queue": pipeline.ONE_QUEUE, "torch": "2.11.0"}
    return table(*rows, columns=["way", "bubble"], **facts)


def test_receives_matter():
    explained = pipeline.receives_matter(waiting(0.33, 0.15, 0.333))
    said(explained, ("The queue explains", "| measured, torch 2.11.0 | 33.0 % |"), "not explain")
    said(pipeline.receives_matter(waiting(0.33, 0.15, 0.20)), ("does not explain",), "queue explains")
    said(pipeline.receives_matter(waiting(0.33, 0.32, 0.333)), ("does not explain",), "queue explains")


def counts(mode, rates, spread=1.0):
    rows = [(mode, m, rate, spread) for m, rate in rates.items()]
    return table(*rows, columns=["mode", "micro_batches", "samples_per_s", "spread_samples_per_s"])


def both_modes(streaming, training, spread=1.0):
    made = pd.concat([counts("streaming", streaming, spread), counts("training", training, spread)])
    made.attrs.update(counts("training", training).attrs)
    return made


def test_best_counts():
    usual = both_modes({1: 1800, 4: 1600}, {1: 150, 4: 310, 16: 372})
    best = "best with 16 micro-batches, a stream with 1**"
    said(pipeline.best_counts(usual, usual), (best, "training | 16 | none"), "needs no more")
    noisy = both_modes({1: 1800, 4: 1600}, {1: 150, 4: 371, 16: 372}, spread=9.0)
    said(pipeline.best_counts(noisy, noisy), ("16 micro-batches (within noise of 4)", "16 | 4 | 372"), "none | 372")
    fewer = both_modes({1: 1, 4: 9}, {1: 9, 4: 1})
    said(pipeline.best_counts(fewer, fewer), ("needs no more micro-batches than a stream",), "best with 4")


def splits(ratio, forecast, fastest="3-3-3-3"):
    rows = [("3-3-3-3", 1.0, 1.0, 0.0), ("6-2-2-2", ratio, forecast, forecast / ratio - 1)]
    return table(
        *rows, columns=["split", "ratio", "forecast_ratio", "error"], even="3-3-3-3", fastest=fastest, splits=165
    )


def test_splits_cost():
    met, missed = splits(1.417, 1.42), splits(1.2, 1.4, fastest="9-1-1-1")
    found = pipeline.splits_cost(met, met)
    said(found, ("takes 1.42 times", "came true. Of all 165 splits", "finds the even one fastest"), "not come")
    found = pipeline.splits_cost(missed, missed)
    said(found, ("did not come true**", "finds another one fastest"), "even one fastest")
    for ratio, here in ((1.9, "here it is too low"), (1.42, "here it came true, too"), (1.1, "here it is too high")):
        found = pipeline.splits_cost(table_here(splits(ratio, 1.4), on_cpu=False), met)
        said(found, ("the forecast came true", here), ("not come", "CPU"))
    on_cpus = pipeline.splits_cost(table_here(splits(0.66, 1.4)), met)
    said(on_cpus, ("the forecast came true. Of all", "say nothing about GPUs"), "here it")


def test_first_entries():
    said(
        pipeline.first_entries(4, 8, 3, count=3), ("1. F0", "3. receive micro-batch 0 for stage 4 (from rank 3)"), "4."
    )


def test_modes_that_differ_on_one_rank_are_not_compared(monkeypatch):
    columns = ["mode", "ranks", "speedup", "samples_per_s", "spread_samples_per_s"]
    for fenced, shown in ((103.0, "1.5× in a stream, 1.1× fenced"), (140.0, "cannot be told")):
        rows = [("streaming", 1, 1.0, 100.0, 2.0), ("streaming", 2, 1.5, 150.0, 2.0)]
        rows += [("fenced", 1, 1.0, fenced, 2.0), ("fenced", 2, 1.1, 110.0, 2.0)]
        monkeypatch.setattr(story.throughput, "throughput", lambda run: run)
        monkeypatch.setattr(story.throughput, "speedups", lambda run: run)
        assert story._stream({"gpus": table(*rows, columns=columns)}).startswith(shown)


@pytest.mark.parametrize(
    ("mib", "part", "unsaid"), [(9000.0, "and 1.80 times the memory", "nan"), (None, "rate**", "MiB,")]
)
def test_reports_model(mib, part, unsaid):
    rows = [("fused", 0.0, "training", 300.0, mib and 5000.0), ("plain", 0.1, "training", 150.0, mib)]
    names = ["attention", "dropout", "mode", "samples_per_s", "mib_per_gpu"]
    made = table(*rows, columns=names).astype({"mib_per_gpu": float})
    said(pipeline.reports_model(made), ("50 % of the rate", part), unsaid)
