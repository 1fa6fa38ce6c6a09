"""Rows of lab 10 → tables: steps and their parts, what was sent when, buckets and their model, equality, symptoms."""
