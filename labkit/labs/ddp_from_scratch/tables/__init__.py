"""Rows of lab 10 → tables: steps and their parts, what was sent when, buckets and their model, equality, symptoms."""

from labkit.labs.ddp_from_scratch.tables.buckets import buckets, curve, overhead
from labkit.labs.ddp_from_scratch.tables.scorecard import scorecard
from labkit.labs.ddp_from_scratch.tables.sent import overlap, sending
from labkit.labs.ddp_from_scratch.tables.steps import implementations
from labkit.labs.ddp_from_scratch.tables.trials import cases, equality, symptoms
from labkit.tables.profile import profile, trace_spans

__all__ = [
    "buckets",
    "cases",
    "curve",
    "equality",
    "implementations",
    "overhead",
    "overlap",
    "profile",
    "scorecard",
    "sending",
    "symptoms",
    "trace_spans",
]
