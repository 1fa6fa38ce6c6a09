"""A lab for the launcher's tests: each point does well, or goes wrong in the way that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Faults(Plan):
    """Two ranks; `rank` is the one with the fault, the other usually waits for it in a collective."""

    lab: ClassVar[str] = "faults"
    worker: ClassVar[str] = "faults_worker"

    gpus: int = 2
    device: str = "cpu"
    faults: tuple[str, ...] = ("none",)
    rank: int = 1

    def knobs(self) -> Iterator[dict[str, Any]]:
        for fault in self.faults:
            yield {"fault": fault}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return 1e18 if point.fault == "too large" else 0
