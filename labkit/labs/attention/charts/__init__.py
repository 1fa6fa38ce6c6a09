"""Tables → figures of lab 08."""

from labkit.labs.attention.charts.memory import memory_chart, plain_chart
from labkit.labs.attention.charts.published import attention_chart
from labkit.labs.attention.charts.speed import race_chart, sweep_chart
from labkit.labs.attention.charts.tiles import tiles_chart

__all__ = [
    "attention_chart",
    "memory_chart",
    "plain_chart",
    "race_chart",
    "sweep_chart",
    "tiles_chart",
]
