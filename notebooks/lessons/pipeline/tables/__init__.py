"""Rows of lab 03 → tables: throughput and memory, timelines, predictions, the reports' figures."""
