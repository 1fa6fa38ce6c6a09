"""What driver and kernel already know of a node's faults: counters and states of NVML, and the kernel log's Xids.

A finding is a fault where the driver asks for a reset, or a part does not work as built. What grows on healthy GPUs,
too, and what a site may have set, is a remark with its numbers. Row remapping and the recovery action:
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pynvml

from labkit.node.gpus import Gpu, ask, nvml
from labkit.node.inventory import Node
from labkit.node.limits import spec
from labkit.node.xids import bus_address, kernel_log, xids

FAULT, REMARK, NOT_READABLE = KINDS = ("fault", "remark", "not readable")
LOST = {pynvml.NVML_ERROR_GPU_IS_LOST: "is lost", pynvml.NVML_ERROR_RESET_REQUIRED: "needs a reset"}
RECOVERY = {1: "reset the GPU", 2: "reboot the node", 3: "drain and reset its peers", 4: "drain and reset the GPU"}
BRIDGED = re.compile(r"\b(PCIE|NVL|A30|A40|A6000|3090)\b", re.IGNORECASE)  # models whose NVLinks need a bridge
LINK_ERRORS = {
    "replays": pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    "recoveries": pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    "CRC errors": pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
}
ECC_ERRORS = {
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
}
Judged = Iterator[tuple[str, str, str]]  # what, detail, kind


@dataclass(frozen=True)
class Finding:
    """What driver or kernel know, in words; `where` names GPU and UUID, `kind` is one of KINDS."""

    what: str
    where: str
    detail: str
    kind: str

    def __str__(self) -> str:
        return f"{self.where.partition(' (')[0]}, {self.what} {self.detail}"


def findings(node: Node) -> tuple[Finding, ...]:
    """Return what driver and kernel of this machine know now, faults first; without visible GPUs, faults alone."""
    found = [*_of_kernel(node), *_of_driver(node)]
    return tuple(each for kind in KINDS for each in found if each.kind == kind and (node.gpus or kind == FAULT))


def summary(found: Iterable[Finding]) -> str:
    """Return the findings in one line: "2 faults, 1 remark; not readable: kernel log"."""
    found = tuple(found)
    counts = Counter(each.kind for each in found)
    counted = ", ".join(f"{counts[kind] or 'no'} {kind}{'s' * (counts[kind] > 1)}" for kind in (FAULT, REMARK))
    unread = ", ".join(dict.fromkeys(each.what for each in found if each.kind == NOT_READABLE))
    return f"{counted}; not readable: {unread}" if unread else counted


def _of_kernel(node: Node) -> list[Finding]:
    if (log := kernel_log()) is None:
        return [Finding("kernel log", "this node", "this user may not read it", NOT_READABLE)]
    names = {bus_address(gpu.pci_bus_id): _name(gpu) for gpu in node.gpus if gpu.pci_bus_id}
    return [
        Finding(each.what, names.get(each.bus, each.device), each.how_often, FAULT if each.is_fault else REMARK)
        for each in xids(log)
    ]


def _of_driver(node: Node) -> list[Finding]:
    with nvml() as works:
        if not works:
            return [Finding("NVML", "this node", "does not answer", NOT_READABLE)]
        answers = {gpu: _Answers(gpu) for gpu in node.gpus}
        found = [
            Finding(what, _name(gpu), detail, kind)
            for gpu in node.gpus
            for judge in (_memory, _links, _power_and_heat, _refused)
            for what, detail, kind in judge(gpu, answers[gpu])
        ]
        versions = {gpu: ask(pynvml.nvmlDeviceGetVbiosVersion, answers[gpu].handle) for gpu in node.gpus}
    for gpu, version in versions.items():
        of_model = Counter(each for other, each in versions.items() if other.name == gpu.name and each)
        if version and version != (usual := of_model.most_common(1)[0][0]):
            found.append(Finding("VBIOS", _name(gpu), f"{version}, others of its model: {usual}", REMARK))
    return found


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.uuid or 'UUID unknown'})"


class _Answers:
    """NVML's answers about one GPU. refused: what it did not tell; a model without a counter refuses nothing.

    lost: why it tells nothing, "" where it answers.
    """

    def __init__(self, gpu: Gpu):
        self.refused: list[str] = []
        self.lost, self.handle = "", None
        self.handle = self("its state", lambda _: pynvml.nvmlDeviceGetHandleByIndex(gpu.index))

    def __call__(self, what: str, query: Any, *arguments: Any) -> Any:
        try:
            return query(self.handle, *arguments)
        except pynvml.NVMLError as error:
            code = getattr(error, "value", 0)
            self.lost = LOST.get(code, self.lost)
            if code != pynvml.NVML_ERROR_NOT_SUPPORTED:
                self.refused.append(what)
        except (OSError, ValueError, AttributeError, TypeError):
            self.refused.append(what)
        return None


def _refused(gpu: Gpu, answers: _Answers) -> Judged:
    if answers.lost:
        yield "driver", f"says: the GPU {answers.lost}", FAULT
    elif answers.refused:
        yield "NVML", f"does not tell {', '.join(dict.fromkeys(answers.refused))}", NOT_READABLE


def _memory(gpu: Gpu, answers: _Answers) -> Judged:
    rows = answers("remapped rows", pynvml.nvmlDeviceGetRemappedRows)
    if rows is not None:
        correctable, uncorrectable, pending, failed = rows
        if failed:
            yield "row remapping", "has failed: the GPU's memory needs repair", FAULT
        if pending:
            yield "row remapping", "is pending: reset the GPU", FAULT
        if correctable or uncorrectable:
            numbers = f"{correctable} after correctable errors, {uncorrectable} after uncorrectable ones"
            yield "remapped rows:", numbers, REMARK
    banks = answers("row-remap availability", pynvml.nvmlDeviceGetRowRemapperHistogram)
    if banks is not None and (banks.low or banks.none):
        yield "spare rows:", f"{banks.low} memory banks have few left, {banks.none} have none", REMARK
    if answers("retired pages", pynvml.nvmlDeviceGetRetiredPagesPendingStatus):
        yield "page retirement", "is pending: reset the GPU", FAULT
    for name, kind in ECC_ERRORS.items():
        if count := answers("ECC errors", pynvml.nvmlDeviceGetTotalEccErrors, kind, pynvml.NVML_AGGREGATE_ECC):
            yield f"{name} ECC errors:", f"{count} in the GPU's life", REMARK
    fields = answers("recovery action", pynvml.nvmlDeviceGetFieldValues, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    for field in fields or ():
        if field.nvmlReturn == pynvml.NVML_SUCCESS and (action := field.value.uiVal):
            yield "driver", f"asks: {RECOVERY.get(action, f'recovery action {action}')}", FAULT


def _links(gpu: Gpu, answers: _Answers) -> Judged:
    width = answers("PCIe width", pynvml.nvmlDeviceGetCurrPcieLinkWidth)
    if width and gpu.pcie_width and width < gpu.pcie_width:
        at_work = answers("performance state", pynvml.nvmlDeviceGetPerformanceState) == pynvml.NVML_PSTATE_0
        generation = answers("PCIe generation", pynvml.nvmlDeviceGetCurrPcieLinkGeneration)
        lanes = f"{width} lanes of {gpu.pcie_width}, generation {generation}"
        yield "PCIe link:", lanes, FAULT if at_work else REMARK  # idle, a card may switch lanes off
    if count := answers("PCIe replays", pynvml.nvmlDeviceGetPcieReplayCounter):
        yield "PCIe replays:", f"{count}", REMARK
    states = {i: ask(pynvml.nvmlDeviceGetNvLinkState, answers.handle, i) for i in range(pynvml.NVML_NVLINK_MAX_LINKS)}
    up = [link for link, state in states.items() if state == pynvml.NVML_FEATURE_ENABLED]
    down = [link for link, state in states.items() if state == pynvml.NVML_FEATURE_DISABLED]
    datasheet = spec(gpu.name)
    built = int(datasheet.nvlink_links or 0) if datasheet and not gpu.mig else 0
    if down and len(up) < built:
        # None is up by design without a bridge, and often where a virtual machine has one GPU of a baseboard.
        alone = not up and (BRIDGED.search(gpu.name or "") or ask(pynvml.nvmlDeviceGetCount) == 1)
        which = f", not link {', '.join(map(str, down))}" if up and len(up) + len(down) == built else ""
        yield "NVLinks:", f"{len(up)} of {built} are up{which}", REMARK if alone else FAULT
    for name, kind in LINK_ERRORS.items():
        if count := sum(ask(pynvml.nvmlDeviceGetNvLinkErrorCounter, answers.handle, link, kind) or 0 for link in up):
            yield f"NVLink {name}:", f"{count} on all links", REMARK


def _power_and_heat(gpu: Gpu, answers: _Answers) -> Judged:
    enforced = answers("power limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)
    default = answers("power limit", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
    if enforced and default and enforced < default:
        yield "power limit:", f"{enforced / 1e3:g} W, {default / 1e3:g} W by default", REMARK
    temperature = answers("temperature", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
    slowdown = (pynvml.nvmlDeviceGetTemperatureThreshold, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    limit = answers("temperature limit", *slowdown)
    if temperature and limit and temperature >= limit:
        yield "temperature:", f"{temperature} °C, clocks are lowered from {limit} °C on", FAULT
