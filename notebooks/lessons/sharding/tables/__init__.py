"""Rows of lab 05 → tables: rates and MFU, ledgers, profiles, memory timelines, projections, the report's figures."""
