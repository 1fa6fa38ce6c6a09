"""Rows of lab 04 → tables: rates, both ledgers, trials, ZeRO, the reports' figures, targets."""
