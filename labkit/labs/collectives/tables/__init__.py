"""Rows of lab 09 → tables: bandwidths and lines, ours beside others', wrong benchmarks, published timings, targets."""

from labkit.labs.collectives.tables.beside import against, rings, symptoms
from labkit.labs.collectives.tables.measured import bandwidths, fits, residuals
from labkit.labs.collectives.tables.reading import candidates, published_bandwidth, published_fits, published_times
from labkit.labs.collectives.tables.scorecard import caught, scorecard

__all__ = [
    "against",
    "bandwidths",
    "candidates",
    "caught",
    "fits",
    "published_bandwidth",
    "published_fits",
    "published_times",
    "residuals",
    "rings",
    "scorecard",
    "symptoms",
]
