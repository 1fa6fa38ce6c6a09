"""Tables → sentences of lab 09: every claim is tested on the table before it is said."""

from labkit.labs.collectives.story.lines import explain_backends, explain_fit, explain_growth
from labkit.labs.collectives.story.rates import explain_bandwidth, explain_latency
from labkit.labs.collectives.story.reports import doubt_reports
from labkit.labs.collectives.story.rivals import explain_against, explain_ring

__all__ = [
    "doubt_reports",
    "explain_against",
    "explain_backends",
    "explain_bandwidth",
    "explain_fit",
    "explain_growth",
    "explain_latency",
    "explain_ring",
]
