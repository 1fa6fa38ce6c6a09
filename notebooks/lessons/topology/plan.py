"""Knobs of lab 01: which copies to time, how large, and from which host memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from labkit import node
from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.node.topology import TopologyError

_MEMORIES = ("pageable", "pinned")


@dataclass(frozen=True, kw_only=True)
class Copies(Plan):
    """Every GPU pair in both directions, and every GPU with the host: alone and all simultaneously.

    Each copies a buffer of `mib` MiB. `numa` lists the NUMA nodes whose memory the host buffers come from; () takes
    every node of this machine.
    """

    lab: ClassVar[str] = "topology"
    worker: ClassVar[str] = "lessons.topology.worker"
    SMALL: ClassVar[dict[str, Any]] = {"mib": 16, "warm_ups": 2, "repeats": 5, "numa": (0,)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"memory": _MEMORIES}
    FEW: ClassVar[int | None] = 4
    one_node: ClassVar[bool] = True

    mib: int = 1024
    warm_ups: int = 10
    repeats: int = 15
    memories: tuple[str, ...] = _MEMORIES
    numa: tuple[int, ...] = ()

    def chosen(self) -> dict[str, Any]:
        return {"numa": self.numa or tuple(number for number, cpus in node.here().numa_nodes if cpus) or (0,)}

    def validate(self) -> None:
        if min(self.mib, self.repeats) < 1 or self.warm_ups < 0:
            raise PlanError(f"mib={self.mib}, repeats={self.repeats}, warm_ups={self.warm_ups}: at least 1, 1 and 0")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for source in range(self.gpus):
            for target in range(self.gpus):
                yield {"copy": "gpu_to_gpu", "source": source, "target": target}
        for direction in ("host_to_gpu", "gpu_to_host"):
            for memory in self.memories:
                for numa in self.numa:
                    for together in (False, True):
                        yield {"copy": direction, "memory": memory, "numa": numa, "together": together}

    @classmethod
    def small(cls, **knobs: Any) -> Self:
        memories = _MEMORIES if cls.on_gpus() else ("pageable",)  # without a GPU nothing can be pinned for one
        return super().small(**{"memories": memories} | knobs)


@dataclass(frozen=True, kw_only=True)
class Rings(Plan):
    """All GPUs send around a ring: by number, and in the order of `yours`, the file of a student's `best_ring`.

    Each buffer has `mib` MiB, and is also filled from pinned memory of its NUMA node. `numa` lists the node of each
    GPU; () takes the driver's word, and 0 where it says nothing.
    """

    lab: ClassVar[str] = "topology"
    worker: ClassVar[str] = "lessons.topology.worker"
    SMALL: ClassVar[dict[str, Any]] = {"mib": 16, "repeats": 5}
    FEW: ClassVar[int | None] = 4
    one_node: ClassVar[bool] = True

    mib: int = 1024
    warm_ups: int = 3
    repeats: int = 10
    yours: str = ""
    numa: tuple[int, ...] = ()

    def chosen(self) -> dict[str, Any]:
        told = _numa_of_gpus()[: self.gpus] if self.device == "cuda" else []
        return {"numa": self.numa or (tuple(told) if len(told) == self.gpus else (0,) * self.gpus)}

    def validate(self) -> None:
        if min(self.mib, self.repeats) < 1 or self.warm_ups < 0 or len(self.numa) != self.gpus:
            raise PlanError(f"mib={self.mib}, repeats={self.repeats}, numa={self.numa}: at least 1 and 1, and one each")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for order in ("yours", "by number") if self.yours else ("by number",):
            yield {"order": order}


def _numa_of_gpus() -> list[int]:
    try:
        devices = node.here().topology().devices
    except TopologyError:
        return []
    return [device.numa or 0 for device in devices if device.kind == "gpu"]
