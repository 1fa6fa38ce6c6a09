"""Tables of lab 03 → sentences: every claim is tested on the table before it is said."""

from labkit.labs.pipeline.story.reports import doubt_reports
from labkit.labs.pipeline.story.runs import (
    explain_bubbles,
    explain_equality,
    explain_gpus,
    explain_micro_batches,
    explain_precisions,
    explain_splits,
)

__all__ = [
    "doubt_reports",
    "explain_bubbles",
    "explain_equality",
    "explain_gpus",
    "explain_micro_batches",
    "explain_precisions",
    "explain_splits",
]
