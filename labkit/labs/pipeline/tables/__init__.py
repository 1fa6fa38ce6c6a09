"""Rows of lab 03 → tables: throughput and memory, timelines, predictions, the reports' figures, targets."""

from labkit.labs.pipeline.tables.ideal import ideal
from labkit.labs.pipeline.tables.parts import best, parts, splits_ranked
from labkit.labs.pipeline.tables.reading import absolute, claims, isolated, split_forecast, split_sums
from labkit.labs.pipeline.tables.scorecard import scorecard
from labkit.labs.pipeline.tables.throughput import balance, memory, precisions, speedups, throughput
from labkit.labs.pipeline.tables.timeline import gantt, predictions
from labkit.labs.pipeline.tables.trials import equality, symptoms

__all__ = [
    "absolute",
    "balance",
    "best",
    "claims",
    "equality",
    "gantt",
    "ideal",
    "isolated",
    "memory",
    "parts",
    "precisions",
    "predictions",
    "scorecard",
    "speedups",
    "split_forecast",
    "split_sums",
    "splits_ranked",
    "symptoms",
    "throughput",
]
