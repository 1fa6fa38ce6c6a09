"""Rows of lab 03 → tables: throughput and memory, timelines, predictions, the reports' figures, targets."""

from labkit.labs.pipeline.tables.parts import best, parts, splits_ranked

__all__ = ["best", "parts", "splits_ranked"]
