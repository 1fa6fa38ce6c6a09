"""Tables → figures of lab 12."""

from labkit.labs.accounting.charts.machines import machines_chart, measured_chart
from labkit.labs.accounting.charts.memory import devices_chart, fit_chart, parts_chart
from labkit.labs.accounting.charts.published import published_chart
from labkit.labs.accounting.charts.speed import batch_chart, splits_chart

__all__ = [
    "batch_chart",
    "devices_chart",
    "fit_chart",
    "machines_chart",
    "measured_chart",
    "parts_chart",
    "published_chart",
    "splits_chart",
]
