"""Rows of lab 04 → tables: rates, both ledgers, trials, ZeRO, the reports' figures, targets."""

from labkit.labs.ddp_fsdp.tables.ledgers import holdings, memory, wrappings
from labkit.labs.ddp_fsdp.tables.reading import differences as printed_differences
from labkit.labs.ddp_fsdp.tables.reading import physics, samples_per_gpu, savings, traffic
from labkit.labs.ddp_fsdp.tables.scorecard import scorecard
from labkit.labs.ddp_fsdp.tables.strategies import throughput
from labkit.labs.ddp_fsdp.tables.trials import equality, symptoms
from labkit.labs.ddp_fsdp.tables.zero import features, zero
from labkit.tables.ledgers import sent
from labkit.tables.rates import differences, ladder

__all__ = [
    "differences",
    "equality",
    "features",
    "holdings",
    "ladder",
    "memory",
    "physics",
    "printed_differences",
    "samples_per_gpu",
    "savings",
    "scorecard",
    "sent",
    "symptoms",
    "throughput",
    "traffic",
    "wrappings",
    "zero",
]
