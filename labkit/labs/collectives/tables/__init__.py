"""Rows of lab 09 → tables: bandwidths and lines, ours beside others', wrong benchmarks, published timings, targets."""
