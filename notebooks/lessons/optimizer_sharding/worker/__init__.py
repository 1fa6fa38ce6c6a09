"""Lab 11, what the workers do: weigh an optimizer, time it, and set it beside the one that shards nothing."""

from __future__ import annotations

from types import SimpleNamespace

from labkit.engine.worker import Worker
from labkit.worker.settings import prepare, release_memory, set_precision
from lessons.optimizer_sharding.plan import Equality, Exchanges, Memory, Steps, Trial
from lessons.optimizer_sharding.worker.equality import compare, try_variant
from lessons.optimizer_sharding.worker.training import measure_memory, time_exchanges, time_steps

__all__ = ["measure", "prepare"]

_WORK = {Memory: measure_memory, Steps: time_steps, Exchanges: time_exchanges, Equality: compare, Trial: try_variant}


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point, and leave no memory to the next one."""
    set_precision("float32")
    _WORK[type(worker.plan)](worker, point)
    release_memory(worker)
