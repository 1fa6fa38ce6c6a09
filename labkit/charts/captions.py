"""Where a figure's numbers come from, in its titles and its footer."""

from __future__ import annotations

import pandas as pd


def where(table: pd.DataFrame) -> str:
    """Say in two words where a table's numbers come from."""
    source = table.attrs["source"]
    if source.startswith("theory"):
        return "Theory"
    size = "small" if table.attrs["small"] else "full"
    return f"{'Recorded' if source.startswith('recorded') else 'Here'}, {size} size"


def sources(*tables: pd.DataFrame | None) -> str:
    """Give the tables' sources, each once, for the footer."""
    return " · ".join(dict.fromkeys(table.attrs["source"] for table in tables if table is not None))
