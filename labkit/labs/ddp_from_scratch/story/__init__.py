"""Tables of lab 10 → sentences: every claim is tested on the table before it is said."""

from labkit.labs.ddp_from_scratch.story.reports import doubt_reports
from labkit.labs.ddp_from_scratch.story.runs import explain_buckets, explain_equality, explain_overlap, explain_steps

__all__ = ["doubt_reports", "explain_buckets", "explain_equality", "explain_overlap", "explain_steps"]
