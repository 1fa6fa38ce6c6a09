"""Rows → tables, for more than one lab: rates, ledgers, lines, profiles, targets, claims, published figures."""
