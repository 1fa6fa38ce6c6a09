"""Tables of lab 03 → figures."""

from labkit.labs.pipeline.charts.curves import bubble_chart, gpus_chart, memory_chart, micro_batch_curve, splits_chart
from labkit.labs.pipeline.charts.lanes import gantt_chart, schedules_chart

__all__ = [
    "bubble_chart",
    "gantt_chart",
    "gpus_chart",
    "memory_chart",
    "micro_batch_curve",
    "schedules_chart",
    "splits_chart",
]
