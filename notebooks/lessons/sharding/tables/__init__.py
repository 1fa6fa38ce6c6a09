"""Rows of lab 05 → tables: rates, ledgers, accumulation, overlap, projected steps; kernels and memory."""
