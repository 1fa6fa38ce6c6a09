"""A lab for the fault tests: each point does well, or goes wrong in the way that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from labkit.engine.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Failing(Plan):
    """`rank` is the one with the fault; the others wait for it in a collective."""

    lab: ClassVar[str] = "failing"
    worker: ClassVar[str] = "failing_worker"

    gpus: int = 2
    device: str = "cpu"
    faults: tuple[str, ...] = ("none",)
    rank: int = 1
    before: str = ""  # a fault of that rank before the first point

    def knobs(self) -> Iterator[dict[str, Any]]:
        for fault in self.faults:
            yield {"fault": fault}


@dataclass(frozen=True, kw_only=True)
class Unmeeting(Failing):
    """One rank cannot open a socket, so that the process group is never made."""

    worker: ClassVar[str] = "failing_to_meet"


@dataclass(frozen=True, kw_only=True)
class Written(Failing):
    """Its worker's module is what a test writes to a file of this name."""

    worker: ClassVar[str] = "failing_as_written"
