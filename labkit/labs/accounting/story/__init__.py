"""Tables → sentences of lab 12."""

from labkit.labs.accounting.story.machines import explain_measured
from labkit.labs.accounting.story.memory import explain_fit, explain_memory
from labkit.labs.accounting.story.reports import doubt_report
from labkit.labs.accounting.story.speed import explain_batch, explain_knobs

__all__ = [
    "doubt_report",
    "explain_batch",
    "explain_fit",
    "explain_knobs",
    "explain_measured",
    "explain_memory",
]
