"""Rows of lab 05 → tables: rates and MFU, ledgers, profiles, memory timelines, projections, the report's figures."""

from labkit.labs.sharding.tables import reading
from labkit.labs.sharding.tables.links import projection
from labkit.labs.sharding.tables.scorecard import scorecard
from labkit.labs.sharding.tables.training import (
    accumulation,
    batches,
    equality,
    ladder,
    memory,
    overlap,
    sent,
    symptoms,
)
from labkit.tables.lines import fits, links
from labkit.tables.profile import memory_timeline, operators, profile, segments, trace_spans
from labkit.tables.rates import strategies

__all__ = [
    "accumulation",
    "batches",
    "equality",
    "fits",
    "ladder",
    "links",
    "memory",
    "memory_timeline",
    "operators",
    "overlap",
    "profile",
    "projection",
    "reading",
    "scorecard",
    "segments",
    "sent",
    "strategies",
    "symptoms",
    "trace_spans",
]
