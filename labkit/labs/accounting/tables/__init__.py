"""Theory, published figures and recorded runs → tables of lab 12."""

from labkit.labs.accounting.tables.measured import measured
from labkit.labs.accounting.tables.memory import drivers, fit, labels, over_devices, parts
from labkit.labs.accounting.tables.reading import answers, mistakes
from labkit.labs.accounting.tables.scorecard import scorecard
from labkit.labs.accounting.tables.speed import bounds, knobs, machines, over_tokens, splits

__all__ = [
    "answers",
    "bounds",
    "drivers",
    "fit",
    "knobs",
    "labels",
    "machines",
    "measured",
    "mistakes",
    "over_devices",
    "over_tokens",
    "parts",
    "scorecard",
    "splits",
]
