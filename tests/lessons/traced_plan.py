"""A lab for the tests of lab 05's profiler: a few layers, trained in data parallel or sharded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from labkit.engine.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Traced(Plan):
    """Two ranks; a point a strategy."""

    lab: ClassVar[str] = "traced"
    worker: ClassVar[str] = "traced_worker"

    gpus: int = 2
    strategies: tuple[str, ...] = ("alone", "ddp", "fsdp")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for strategy in self.strategies:
            yield {"strategy": strategy, "ranks": self.gpus, "micro_batch": 64}
