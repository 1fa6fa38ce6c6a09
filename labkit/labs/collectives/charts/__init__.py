"""Tables → figures of lab 09."""

from labkit.labs.collectives.charts.against import against_chart
from labkit.labs.collectives.charts.growth import growth_chart
from labkit.labs.collectives.charts.overview import overview_chart, published_chart
from labkit.labs.collectives.charts.ring import ring_chart
from labkit.labs.collectives.charts.sizes import bandwidth_chart, time_chart

__all__ = [
    "against_chart",
    "bandwidth_chart",
    "growth_chart",
    "overview_chart",
    "published_chart",
    "ring_chart",
    "time_chart",
]
