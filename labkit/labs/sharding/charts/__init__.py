"""Tables of lab 05 → figures."""

from labkit.charts.profile import breakdown_chart, trace_chart
from labkit.charts.waterfall import waterfall_chart
from labkit.labs.sharding.charts.links import links_chart, projection_chart
from labkit.labs.sharding.charts.profile import segments_chart, timeline_chart
from labkit.labs.sharding.charts.training import batches_chart, scaling_chart

__all__ = [
    "batches_chart",
    "breakdown_chart",
    "links_chart",
    "projection_chart",
    "scaling_chart",
    "segments_chart",
    "timeline_chart",
    "trace_chart",
    "waterfall_chart",
]
