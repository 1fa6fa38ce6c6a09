"""Tables of lab 11 → figures: memory, times, buckets, balance, stages, the report."""

from labkit.labs.optimizer_sharding.charts.balance import balance_chart, stages_chart
from labkit.labs.optimizer_sharding.charts.memory import memory_chart
from labkit.labs.optimizer_sharding.charts.published import report_chart
from labkit.labs.optimizer_sharding.charts.speed import buckets_chart, steps_chart

__all__ = ["balance_chart", "buckets_chart", "memory_chart", "report_chart", "stages_chart", "steps_chart"]
