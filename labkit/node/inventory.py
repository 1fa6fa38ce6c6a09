"""What this machine is: GPUs, CPUs, memory, driver and versions, as one value that goes into every run.

No host name and no user name: the JSON is committed with recorded runs.
"""

import functools
import importlib.metadata
import json
import os
import platform
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from labkit.node.gpus import Gpu, one_per_gpu, read_gpus, visible_gpus, why_none_is_visible, why_slices_count_once
from labkit.node.host import cgroup_quota
from labkit.node.topology import Topology, TopologyError, parse
from labkit.node.wiring import readable_matrix
from labkit.stored import restored

if TYPE_CHECKING:
    import pandas as pd

# What we call a library, and the distributions that bring it.
_DISTRIBUTIONS = {
    "torch": ["torch"],
    "nccl": ["nvidia-nccl-cu13", "nvidia-nccl-cu12"],
    "cudnn": ["nvidia-cudnn-cu13", "nvidia-cudnn-cu12"],
    "triton": ["triton"],
    "transformers": ["transformers"],
    "deepspeed": ["deepspeed"],
    "numpy": ["numpy"],
    "pandas": ["pandas"],
    "matplotlib": ["matplotlib"],
}


@dataclass(frozen=True)
class Node:
    """One machine as a process sees it.

    gpus: those that CUDA shows, in its order; of several MIG slices of one GPU, the first. cores: those that this
    process may use. numa_nodes: (id, "0-31").
    quota_cores: what the control group allows of them, such as 7.65; None where it allows all, and in older JSON.
    cuda_driver: the newest CUDA that the driver supports. topology_text: `nvidia-smi topo -m` of all GPUs of the
    machine, or the same matrix from NVML where that text cannot be read; "" where no GPU is visible. date: ISO day on
    which it was read.
    """

    gpus: tuple[Gpu, ...]
    cpu_name: str
    cores: int
    numa_nodes: tuple[tuple[int, str], ...]
    memory_gib: float | int
    driver: str | None
    cuda_driver: str | None
    versions: dict[str, str]
    topology_text: str
    date: str
    quota_cores: float | int | None = None

    @property
    def usable_cores(self) -> float:
        """How many cores may be busy at the same time: those of this process, at most the control group's quota."""
        return min(self.cores, self.quota_cores or self.cores)

    @property
    def cores_text(self) -> str:
        """The cores, and how many of them the control group allows if fewer ("96 CPU cores, 7.65 allowed")."""
        quota = f", {self.usable_cores:.2f}".rstrip("0").rstrip(".") + " allowed"
        allowed = quota if self.usable_cores < self.cores else ""
        return f"{self.cores} CPU core{'s' * (self.cores != 1)}{allowed}"

    @property
    def has_gpus(self) -> bool:
        """Whether CUDA shows at least one GPU."""
        return bool(self.gpus)

    @property
    def label(self) -> str:
        """A name for charts: "4 × NVIDIA H200", or "2 CPU cores (AMD EPYC 7B13)" where there is no GPU."""
        if not self.gpus:
            return f"{self.cores_text} ({self.cpu_name})"
        names = Counter(gpu.name or "unknown GPU" for gpu in self.gpus)
        return " + ".join(f"{count} × {name}" for name, count in names.items())

    def topology(self) -> Topology:
        """The wiring of the visible GPUs, and of all network cards; TopologyError where the text cannot be read."""
        return parse(self.topology_text).of_gpus(gpu.index for gpu in self.gpus)

    def path_between(self, a: Gpu, b: Gpu) -> str:
        """The class of the path between two GPUs, as "NV18" or "SYS"; "" where the topology does not tell."""
        try:
            return parse(self.topology_text).path(f"GPU{a.index}", f"GPU{b.index}").kind
        except (TopologyError, KeyError):
            return ""

    def software(self, gpus: int) -> dict[str, Any]:
        """What a run on the first `gpus` GPUs depends on besides its code: driver, torch, processor model, cores."""
        names = " + ".join(sorted({gpu.name or "unknown GPU" for gpu in self.gpus[:gpus]}))
        parts = {"driver": self.driver if gpus else None, "torch": self.versions.get("torch"), "cores": self.cores}
        return {name: value for name, value in parts.items() if value} | {"processor": names or self.cpu_name}

    def to_json(self) -> str:
        """One JSON object, keys as the fields, ready for `from_json`."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Node":
        """The node that `to_json` wrote; unknown keys are ignored, anything else wrong is a ValueError."""
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a node's JSON cannot be read: {error}") from None
        return restored(cls, record)

    def table(self) -> "pd.DataFrame":
        """Return the column `value`, at most 12 rows, one a property, for a notebook."""
        import pandas as pd  # here, so that `import labkit` stays fast

        numa = "; ".join(f"{node}: CPUs {cpus}" for node, cpus in self.numa_nodes)
        rows = {
            "GPUs": self.label if self.gpus else "none",
            "memory per GPU": _common_or_all(f"{g.memory_mib / 1024:.0f} GiB" for g in self.gpus if g.memory_mib),
            "NVLinks per GPU": _common_or_all(str(g.nvlinks) for g in self.gpus if g.nvlinks is not None),
            "ECC, MIG, persistence mode": _common_or_all(
                f"{_on_or_off(g.ecc)}, {_on_or_off(g.mig)}, {_on_or_off(g.persistence)}" for g in self.gpus
            ),
            "power cap, temperature": _common_or_all(
                f"{_with_unit(g.power_limit_w, 'W')}, {_with_unit(g.temperature_c, '°C')}" for g in self.gpus
            ),
            "driver, newest CUDA": ", ".join(filter(None, [self.driver, self.cuda_driver])),
            "CPU": self.cpu_name,
            "cores for us": self.cores_text.replace(" CPU cores", "").replace(" CPU core", ""),
            "NUMA nodes": numa,
            "host memory": f"{self.memory_gib:.0f} GiB",
            "software": ", ".join(
                f"{name} {self.versions[name]}"
                for name in ("python", "torch", "nccl", "triton")
                if name in self.versions
            ),
            "read on": self.date,
        }
        return pd.DataFrame({"value": {name: value or "–" for name, value in rows.items()}})


@functools.cache
def here() -> Node:
    """This machine, read once a process; CUDA_VISIBLE_DEVICES counts as it stands at the first call."""
    gpus, slices, driver, cuda_driver = read_gpus()
    visible, numa_nodes = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), gpus, slices), read_numa_nodes()
    return Node(
        gpus=one_per_gpu(visible),
        cpu_name=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        numa_nodes=numa_nodes,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        driver=driver,
        cuda_driver=cuda_driver,
        versions={"python": platform.python_version()} | _versions(),
        topology_text=readable_matrix(topology_text(), gpus, dict(numa_nodes)) if visible else "",
        date=date.today().isoformat(),
        quota_cores=cgroup_quota(),
    )


def why_no_gpu_is_visible() -> str:
    """Return half a sentence: that no GPU is visible here, and what NVML says."""
    return why_none_is_visible(os.environ.get("CUDA_VISIBLE_DEVICES"))


def why_no_more_gpus() -> str:
    """Return why MIG slices that are visible here count as one GPU, as a clause; "" where none do."""
    gpus, slices, *_ = read_gpus()
    return why_slices_count_once(visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), gpus, slices))


def topology_text() -> str:
    """What nvidia-smi prints; "" where it is missing, fails or hangs."""
    try:
        smi = subprocess.run(
            ["nvidia-smi", "topo", "-m"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return smi.stdout


def _versions() -> dict[str, str]:
    """Library → version from package metadata: nothing is imported, least of all torch."""
    versions = {}
    for name, distributions in _DISTRIBUTIONS.items():
        for distribution in reversed(distributions):
            try:
                versions[name] = importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
    return versions


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    # Arm kernels print no model name.
    return next(filter(None, names), platform.machine())


def read_numa_nodes(folder: Path = Path("/sys/devices/system/node")) -> tuple[tuple[int, str], ...]:
    """(0, "0-31") for each NUMA node; a node of memory only has the list ""."""
    lists = {int(path.parent.name[4:]): path for path in folder.glob("node[0-9]*/cpulist")}
    return tuple((node, lists[node].read_text(encoding="utf-8").strip()) for node in sorted(lists))


def _common_or_all(values: Any) -> str:
    """A value that all GPUs share once, else those of each."""
    values = list(values)
    separator = "; " if any(", " in value for value in values) else ", "
    return separator.join(values[:1] if len(set(values)) == 1 else values)


def _with_unit(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:.0f} {unit}"


def _on_or_off(state: bool | None) -> str:
    return {True: "on", False: "off", None: "–"}[state]
