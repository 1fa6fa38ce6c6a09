"""Rows of lab 08 → tables: times beside physics, memory beside its formula, errors, a report's figures."""
