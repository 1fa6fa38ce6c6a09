"""Tables of lab 11 → sentences, each tested on its table before it is said."""

from labkit.labs.optimizer_sharding.story.reports import doubt_report
from labkit.labs.optimizer_sharding.story.runs import (
    explain_balance,
    explain_buckets,
    explain_equality,
    explain_memory,
    explain_stages,
    explain_steps,
)

__all__ = [
    "doubt_report",
    "explain_balance",
    "explain_buckets",
    "explain_equality",
    "explain_memory",
    "explain_stages",
    "explain_steps",
]
