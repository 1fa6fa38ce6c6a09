"""Who holds the GPUs' memory at this moment, by process; nothing is ever done to those processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import pynvml

from labkit.node.gpus import Gpu, ask, nvml

MARK_VARIABLE = "LABKIT_RUN"  # in the environment of every process of a run: to which run it belongs


@dataclass(frozen=True)
class Holder:
    """A process that holds memory of a GPU: which, whose, how much, and whether a run of this workbook started it."""

    gpu: int
    pid: int
    user: str
    mib: int | None
    ours: bool

    def __str__(self) -> str:
        much = "memory" if self.mib is None else f"{self.mib} MiB"
        whose = " (left over from an earlier run of this workbook)" if self.ours else ""
        return f"GPU {self.gpu}: process {self.pid} of {self.user} holds {much}{whose}"


def used_mib(gpus: Sequence[Gpu]) -> dict[int, int]:
    """Return the memory in use on each GPU, by index, in MiB; a GPU whose driver does not tell is left out."""
    with nvml() as works:
        if not works:
            return {}
        asked = {gpu.index: ask(pynvml.nvmlDeviceGetMemoryInfo, _handle(gpu)) for gpu in gpus}
    return {index: memory.used // 2**20 for index, memory in asked.items() if memory is not None}


def free_bytes(gpus: Sequence[Gpu]) -> int | None:
    """Return the memory that is free on each of the GPUs, or MIG slices; None where the driver does not tell."""
    with nvml() as works:
        if not works or not gpus:
            return None
        found = [ask(pynvml.nvmlDeviceGetMemoryInfo, ask(pynvml.nvmlDeviceGetHandleByUUID, gpu.uuid)) for gpu in gpus]
    return None if None in found else min(memory.free for memory in found)


def holders(gpus: Sequence[Gpu]) -> list[Holder]:
    """Return the processes that hold memory of these GPUs, largest first; empty where there is no driver."""
    with nvml() as works:
        if not works:
            return []
        holders_of_memory = [
            _holder(gpu, process)
            for gpu in gpus
            for process in ask(pynvml.nvmlDeviceGetComputeRunningProcesses, _handle(gpu)) or []
        ]
    return sorted(holders_of_memory, key=lambda holder: -(holder.mib or 0))


def _handle(gpu: Gpu):
    return ask(pynvml.nvmlDeviceGetHandleByIndex, gpu.index)


def _holder(gpu: Gpu, process) -> Holder:
    used = process.usedGpuMemory
    try:
        owner = psutil.Process(process.pid)
        user, ours = owner.username(), set(owner.environ().get(MARK_VARIABLE, "-")) != {"-"}
    except (psutil.Error, OSError):  # another user's, or in a container that this one does not see
        user, ours = "an unknown user", False
    return Holder(gpu.index, process.pid, user, used // 2**20 if used else None, ours)
