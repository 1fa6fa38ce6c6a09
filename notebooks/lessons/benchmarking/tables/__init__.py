"""Rows of lab 06 → tables: times beside least times, launches beside work, what the profiler saw."""
