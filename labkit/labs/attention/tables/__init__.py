"""Rows of lab 08 → tables: times beside physics, memory beside its formula, errors, a report's figures."""

from labkit.labs.attention.tables.memory import errors, held, limit, plain
from labkit.labs.attention.tables.reading import everything
from labkit.labs.attention.tables.scorecard import scorecard
from labkit.labs.attention.tables.speed import floor, race, sweep, tiles

__all__ = [
    "errors",
    "everything",
    "floor",
    "held",
    "limit",
    "plain",
    "race",
    "scorecard",
    "sweep",
    "tiles",
]
