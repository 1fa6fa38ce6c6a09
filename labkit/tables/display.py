"""How notebooks show tables: the whole text of every cell."""

import pandas as pd


def show_whole_text() -> None:
    """Make pandas show the whole text of every cell. By default it cuts names and error messages at 50 characters."""
    pd.set_option("display.max_colwidth", None)
