"""Rows of lab 07 → tables: numbers and their sums, speed, memory by item and moment, levers, symptoms."""
