"""The axis that the charts of lab 08 share: sequence lengths, each a power of two."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from labkit.story import units

MOST = 7  # names that fit under one of two panels


def mark_lengths(ax: Axes, sequences: pd.Series) -> None:
    """Mark the lengths on a logarithmic axis; where they are many, every second one, with the longest among them."""
    lengths = sorted(set(sequences))
    named = lengths[:: -math.ceil(len(lengths) / MOST)]
    ax.set_xscale("log", base=2)
    ax.xaxis.set(major_locator=FixedLocator(named), minor_locator=NullLocator())
    ax.set_xticks(named, [units.count(length) for length in named], fontsize=8.5)
    ax.set_xlabel("sequence length, tokens")
