"""Rows of lab 08 → tables: times and their limits, memory beside its ledger, the reports' figures."""
