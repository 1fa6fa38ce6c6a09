"""Tables of lab 04 → sentences: every claim is tested on the table before it is said."""

from labkit.labs.ddp_fsdp.story.reports import doubt_reports
from labkit.labs.ddp_fsdp.story.runs import explain_memory, explain_strategies, explain_zero
from labkit.story.training import explain_equality, explain_knobs, explain_sent

__all__ = [
    "doubt_reports",
    "explain_equality",
    "explain_knobs",
    "explain_memory",
    "explain_sent",
    "explain_strategies",
    "explain_zero",
]
