"""Steps by implementation, buckets against backward, the sweep over sizes, and what a report printed, as pictures."""

from labkit.labs.ddp_from_scratch.charts.buckets import buckets_chart, flights_chart
from labkit.labs.ddp_from_scratch.charts.published import published_chart
from labkit.labs.ddp_from_scratch.charts.steps import steps_chart
from labkit.labs.sharding.charts import breakdown_chart, trace_chart

__all__ = [
    "breakdown_chart",
    "buckets_chart",
    "flights_chart",
    "published_chart",
    "steps_chart",
    "trace_chart",
]
