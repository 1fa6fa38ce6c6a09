"""Rows of lab 11 → tables: memory, times, balance, stages of ZeRO, trials, the report's figures, targets."""

from labkit.labs.optimizer_sharding.tables.balance import balance, owned
from labkit.labs.optimizer_sharding.tables.memory import memory, saving, sent
from labkit.labs.optimizer_sharding.tables.reading import read_report
from labkit.labs.optimizer_sharding.tables.scorecard import scorecard
from labkit.labs.optimizer_sharding.tables.stages import by_ranks, stages
from labkit.labs.optimizer_sharding.tables.steps import buckets, steps
from labkit.labs.optimizer_sharding.tables.trials import equality, symptoms

__all__ = [
    "balance",
    "buckets",
    "by_ranks",
    "equality",
    "memory",
    "owned",
    "read_report",
    "saving",
    "scorecard",
    "sent",
    "stages",
    "steps",
    "symptoms",
]
