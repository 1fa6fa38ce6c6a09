"""Rows of lab 11 → tables: memory, times, balance, stages of ZeRO, trials, the report's figures, targets."""
