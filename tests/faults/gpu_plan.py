"""The plan of the GPU faults: one rank fails while all others are inside an all-reduce over NCCL."""

from dataclasses import dataclass

from labkit.engine.plan import Plan


@dataclass(frozen=True, kw_only=True)
class GpuFaults(Plan):
    lab = "gpufaults"
    worker = "gpu_worker"

    faults: tuple[str, ...] = ("none",)

    def knobs(self):
        for fault in self.faults:
            yield {"fault": fault}
