"""Tables of lab 05 → sentences: every claim is tested on the table before it is said."""

from labkit.labs.sharding.story.projection import explain_links, explain_projection
from labkit.labs.sharding.story.reports import doubt_report
from labkit.labs.sharding.story.runs import (
    explain_accumulation,
    explain_ledgers,
    explain_overlap,
    explain_scaling,
    explain_speed,
)
from labkit.story.training import explain_equality

__all__ = [
    "doubt_report",
    "explain_accumulation",
    "explain_equality",
    "explain_ledgers",
    "explain_links",
    "explain_overlap",
    "explain_projection",
    "explain_scaling",
    "explain_speed",
]
