"""Rows of lab 13 → tables."""
