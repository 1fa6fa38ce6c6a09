"""Tables of lab 08 → sentences: what grows and what cannot, who wins where, and what a report's tables say."""

from labkit.labs.attention.story.memory import explain_errors, explain_memory, explain_plain
from labkit.labs.attention.story.reports import doubt_reports
from labkit.labs.attention.story.speed import explain_race, explain_sweep

__all__ = [
    "doubt_reports",
    "explain_errors",
    "explain_memory",
    "explain_plain",
    "explain_race",
    "explain_sweep",
]
