"""What NVML says about the GPUs, and which of them CUDA shows to this process.

Works where there is no driver and no GPU, and where single queries fail: the field is None then.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from labkit.node.host import numa_node

PCI_DEVICES = Path("/sys/bus/pci/devices")
_READS = 0  # NVML_P2P_CAPS_INDEX_READ, which pynvml has as a tuple
AMPERE = (8, 0)  # the first compute capability with matrix units for bfloat16 and TF32
AMD_DEVICE = Path("/dev/kfd")  # where AMD's driver takes work


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG slice; a field is None where the driver does not tell.

    index: NVML's, in PCI order, which is the number in `nvidia-smi` and in the topology's "GPU2".
    compute_capability: "9.0". ecc, mig: switched on now. numa_node: from the kernel.
    nvlinks: links that are up; None where the GPU has none. pcie_*: the best that card and slot agree on, because
    an idle card lowers the generation in use. power_limit_w: the enforced cap. temperature_c: when it was read.
    persistence: whether the driver stays loaded between programs. The last three may be missing from older JSON.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    memory_mib: int | None = None
    compute_capability: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    numa_node: int | None = None
    nvlinks: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    persistence: bool | None = None

    @property
    def version(self) -> tuple[int, ...]:
        """The compute capability as numbers, (9, 0); () where the driver does not tell."""
        return tuple(map(int, self.compute_capability.split("."))) if self.compute_capability else ()


def read_gpus() -> tuple[tuple[Gpu, ...], tuple[Gpu, ...], str | None, str | None]:
    """All GPUs, their MIG slices, the driver's version and the CUDA version it supports; empty without a driver."""
    with nvml() as works:
        if not works:
            return (), (), None, None
        handles = [ask(pynvml.nvmlDeviceGetHandleByIndex, i) for i in range(ask(pynvml.nvmlDeviceGetCount) or 0)]
        gpus = tuple(_gpu(index, handle) for index, handle in enumerate(handles))
        slices = tuple(s for gpu, handle in zip(gpus, handles, strict=True) if gpu.mig for s in _slices(gpu, handle))
        cuda = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        # 13020 is 13.2
        version = cuda and f"{cuda // 1000}.{cuda % 1000 // 10}"
        return gpus, slices, ask(pynvml.nvmlSystemGetDriverVersion), version


def why_none_is_visible(variable: str | None) -> str:
    """Why CUDA shows no GPU, as half a sentence: what NVML says, or that CUDA_VISIBLE_DEVICES hides what there is."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:
        if AMD_DEVICE.exists():
            return "no NVIDIA GPU is visible here, only one of AMD's, which the workbook cannot measure yet"
        return f"no GPU is visible here (NVML says: {error})"
    count = ask(pynvml.nvmlDeviceGetCount) or 0
    ask(pynvml.nvmlShutdown)
    hidden = f", and CUDA_VISIBLE_DEVICES={variable!r} hides them" if count and variable is not None else ""
    return f"no GPU is visible here (NVML finds {count}{hidden})"


def visible_gpus(variable: str | None, gpus: Sequence[Gpu], slices: Sequence[Gpu] = ()) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all of them where it is not set (None).

    As torch reads it, as CUDA does. Entries are indices, the starts of GPUs' UUIDs ("GPU-8f3a") or those of MIG slices'
    ("MIG-4d2e"), as the first one is. Of an index, the digits at the start count: "1gpu2" is 1, "0-3" is 0. The first
    entry that fits nothing, or more than one, ends the list, so that "" and "-1" leave none; naming a GPU twice leaves
    none. A MIG slice is listed as itself: its name and memory, the index of its GPU. The older
    "MIG-GPU-<uuid>/<gi>/<ci>" fits nothing. Indices are NVML's: CUDA's are the same where GPUs are of one kind or
    CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    if variable is None:
        return tuple(gpus)
    entries = _entries(variable)
    if len({*entries}) < len(entries):
        return ()
    chosen: list[Gpu] = []
    for entry in entries:
        fitting = [gpu for gpu in (*gpus, *slices) if _fits(entry, gpu, is_slice=gpu in slices)]
        if len(fitting) != 1:
            break
        if fitting[0] in chosen:
            return ()
        chosen += fitting
    return tuple(chosen)


def _entries(variable: str) -> list[int] | list[str]:
    """Return the indices or UUIDs that the variable lists before the first entry that is neither."""
    for kind in ("GPU-", "MIG-"):
        if variable.startswith(kind):
            return list(itertools.takewhile(re.compile(kind).match, variable.split(",")))
    starts = (re.match(r"[+]?([0-9]+)|-0+(?![0-9])", entry.strip()) for entry in variable.split(","))
    return [int(start[1] or 0) for start in itertools.takewhile(bool, starts) if start]


def _fits(entry: int | str, gpu: Gpu, is_slice: bool) -> bool:
    if isinstance(entry, int):
        return gpu.index == entry and not is_slice
    return (gpu.uuid or "").startswith(entry)


def one_per_gpu(visible: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The first MIG slice of each GPU, and whole GPUs: NCCL refuses two ranks on one GPU."""
    return tuple(
        {gpu.index: gpu for gpu in reversed(visible)}[index] for index in dict.fromkeys(g.index for g in visible)
    )


def why_slices_count_once(visible: Sequence[Gpu]) -> str:
    """Which visible MIG slices share a GPU and so count as one, as a clause that begins with a comma; "" for none."""
    by_gpu = [
        [gpu.uuid or "?" for gpu in visible if gpu.index == index] for index in dict.fromkeys(g.index for g in visible)
    ]
    shared = [" and ".join(uuids) for uuids in by_gpu if len(uuids) > 1]
    return (
        f", because {'; '.join(shared)} are MIG slices of one GPU: NCCL refuses two ranks on one GPU" if shared else ""
    )


def what_is_lacking(gpu: Gpu) -> str:
    """What a GPU before Ampere cannot do, as a sentence; "" for later ones, and where the driver does not tell."""
    if not gpu.version or gpu.version >= AMPERE:
        return ""
    emulated = "bfloat16 products are emulated and slow, TF32 is plain float32, and what needs either is left out"
    return f"{gpu.name} (compute capability {gpu.compute_capability}) has matrix units for float16 alone: {emulated}."


def pairs_without_peer_access(gpus: Sequence[Gpu]) -> list[tuple[int, int]]:
    """The pairs of GPUs that cannot read each other's memory, says the driver: copies go through the host's."""
    with nvml() as works:
        if not works:
            return []
        handles = {gpu.index: ask(pynvml.nvmlDeviceGetHandleByIndex, gpu.index) for gpu in gpus}
        status = {
            pair: ask(pynvml.nvmlDeviceGetP2PStatus, *map(handles.get, pair), _READS)
            for pair in itertools.combinations(handles, 2)
        }
    return [pair for pair, told in status.items() if told not in (None, pynvml.NVML_P2P_STATUS_OK)]


@contextmanager
def nvml() -> Iterator[bool]:
    """Open NVML for what stands inside; gives False where there is no driver."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError):
        yield False
        return
    try:
        yield True
    finally:
        ask(pynvml.nvmlShutdown)


def ask(query: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None: a driver may lack a query, and a lost GPU fails all of them."""
    try:
        answer = query(*arguments)
    except (pynvml.NVMLError, OSError, ValueError, AttributeError, TypeError):
        return None
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _gpu(index: int, handle: Any) -> Gpu:
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    pci = ask(pynvml.nvmlDeviceGetPciInfo, handle)
    bus = ask(getattr, pci, "busId")
    milliwatts = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    persistence = ask(pynvml.nvmlDeviceGetPersistenceMode, handle)
    return Gpu(
        index=index,
        name=ask(pynvml.nvmlDeviceGetName, handle),
        uuid=ask(pynvml.nvmlDeviceGetUUID, handle),
        pci_bus_id=bus,
        memory_mib=memory and memory.total // 2**20,
        compute_capability=capability and ".".join(map(str, capability)),
        ecc=_is_on(ask(pynvml.nvmlDeviceGetEccMode, handle)),
        mig=_is_on(ask(pynvml.nvmlDeviceGetMigMode, handle)),
        # NVML writes eight digits of PCI domain, the kernel four.
        numa_node=numa_node(PCI_DEVICES / bus.lower()[-12:]) if bus else None,
        nvlinks=_nvlinks(handle),
        pcie_generation=ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        power_limit_w=None if milliwatts is None else milliwatts / 1e3,
        temperature_c=ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        persistence=None if persistence is None else bool(persistence),
    )


def _slices(gpu: Gpu, handle: Any) -> list[Gpu]:
    count = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    handles = [ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, i) for i in range(count)]
    return [_slice(gpu, handle) for handle in handles if handle is not None]


def _slice(gpu: Gpu, handle: Any) -> Gpu:
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    name, uuid = ask(pynvml.nvmlDeviceGetName, handle), ask(pynvml.nvmlDeviceGetUUID, handle)
    # A slice reaches no other GPU: NVLink is off in MIG mode.
    return replace(gpu, name=name, uuid=uuid, memory_mib=memory and memory.total // 2**20, nvlinks=None)


def _is_on(mode: Any) -> bool | None:
    """NVML gives the mode now and the one after a reset."""
    return None if mode is None else bool(mode[0])


def _nvlinks(handle: Any) -> int | None:
    states = [ask(pynvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS)]
    readable = [state for state in states if state is not None]
    return sum(state == pynvml.NVML_FEATURE_ENABLED for state in readable) if readable else None
