"""Rows, lines and published figures → tables of lab 14."""
