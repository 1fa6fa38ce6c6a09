"""What the driver counts of one GPU: its state at one moment, and its samples while a run goes on.

Every query may fail, by itself or with the whole GPU: what is not answered is left out, and never becomes zero.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pynvml

from labkit.node.conditions import GpuState
from labkit.node.gpus import Gpu, ask
from labkit.node.occupancy import holders

# Why a clock is below the highest one that was asked for, by the bits of nvmlDeviceGetCurrentClocksEventReasons. Idle
# GPUs and clocks that somebody has set lower are no throttling, but clocks that are set explain a low rate.
REASONS = {
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "set clocks",
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "temperature",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware temperature limit",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}
ALL_LINKS = 0xFFFFFFFF  # scope of a field: the sum over a GPU's NVLinks
KIB = 1024

# Each of these takes the driver a millisecond, ten times as long as the rest of a sample: one is read per look.
SLOW = ("nvlink", "pcie")
NVLINK_SENT = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX  # a counter in KiB
# In KB/s over 20 ms. The driver also counts the bytes, in 32 bits, which overflow within a tenth of a second.
PCIE_RECEIVED = pynvml.NVML_PCIE_UTIL_RX_BYTES
LONG_VALUE_TYPES = (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)


class Counters:
    """The counters of one GPU, or MIG slice; NVML must be open (`gpus.nvml`) while they are read."""

    def __init__(self, gpu: Gpu):
        self.gpu = gpu
        self.is_slice = (gpu.uuid or "").startswith("MIG-")
        by_uuid = (pynvml.nvmlDeviceGetHandleByUUID, gpu.uuid)
        self._handle = ask(*by_uuid) if self.is_slice else ask(pynvml.nvmlDeviceGetHandleByIndex, gpu.index)
        self._sent: tuple[float, int] | None = None  # over NVLink: when it was read, and bytes
        self._moving = False  # whether that counter has grown since this object was made

    def sample(self, slow: str = "") -> dict[str, Any]:
        """Return utilisation, memory, power, clock and temperature now, as far as known; {} of a GPU that is silent.

        `slow`, one of SLOW, adds traffic: over the NVLinks since it was last read, or over PCIe at this moment.
        """
        reasons = _reasons(self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons))
        traffic = self._nvlink() if slow == "nvlink" else self._pcie() if slow else {}
        readings = self._fast_readings() | traffic | {"throttle_reasons": reasons if reasons is None else list(reasons)}
        return {name: value for name, value in readings.items() if value is not None}

    def state(self) -> GpuState:
        """Return all that is known of the GPU now; a GPU that does not answer has a state of None."""
        uncorrected = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        state = GpuState(
            self.gpu.index,
            **self._fast_readings(),
            throttle_reasons=_reasons(self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)),
            power_limit_w=_scaled(self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit), 1e-3),
            ecc_uncorrected=self._ask(pynvml.nvmlDeviceGetTotalEccErrors, *uncorrected),
            pcie_generation_most=self._ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
            pcie_width=self._ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
            **self._links(),
            power_throttled_s=self._throttled(pynvml.NVML_PERF_POLICY_POWER),
            heat_throttled_s=self._throttled(pynvml.NVML_PERF_POLICY_THERMAL),
        )
        return self.with_other_processes(state)

    def with_other_processes(self, state: GpuState) -> GpuState:
        """Return the state with the other processes that are on the GPU now; the rest of it stays, and is not asked."""
        answers = self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses) is not None
        others = sum(not holder.ours for holder in holders([self.gpu])) if answers else None
        return replace(state, other_processes=others)

    def _ask(self, query: Any, *arguments: Any) -> Any:
        return None if self._handle is None else ask(query, self._handle, *arguments)

    def _fast_readings(self) -> dict[str, Any]:
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        return {
            "utilisation_percent": ask(getattr, self._ask(pynvml.nvmlDeviceGetUtilizationRates), "gpu"),
            "memory_mib": None if memory is None else memory.used // 2**20,
            "power_w": _scaled(self._ask(pynvml.nvmlDeviceGetPowerUsage), 1e-3),
            "sm_clock_mhz": self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "temperature_c": self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
        }

    def _nvlink(self) -> dict[str, float]:
        """Return the traffic since the last call in GB/s; nothing the first time, and where a counter went back.

        Nor before a counter has grown: some drivers answer with success and a constant while NCCL uses the links
        (github.com/NVIDIA/DCGM, issues 149 and 236), and only its growth shows that a counter counts.
        """
        (value,) = self._ask(pynvml.nvmlDeviceGetFieldValues, [(NVLINK_SENT, ALL_LINKS)]) or (None,)
        if value is None or value.nvmlReturn != pynvml.NVML_SUCCESS or value.valueType not in LONG_VALUE_TYPES:
            return {}
        now, counted = time.monotonic(), value.value.ullVal * KIB
        then, before = self._sent or (now, counted)
        self._sent, self._moving = (now, counted), self._moving or counted > before
        if now > then and counted >= before and self._moving:
            return {"nvlink_tx_gb_per_s": round((counted - before) / (now - then) / 1e9, 3)}
        return {}

    def _pcie(self) -> dict[str, float | None]:
        rate = self._ask(pynvml.nvmlDeviceGetPcieThroughput, PCIE_RECEIVED)
        return {"pcie_rx_gb_per_s": _scaled(rate, 1e-6)}

    def _links(self) -> dict[str, int | None]:
        """Return how many NVLinks are up, and the recoveries of those that exist: each query takes a millisecond."""
        every, recoveries = range(pynvml.NVML_NVLINK_MAX_LINKS), pynvml.NVML_NVLINK_ERROR_DL_RECOVERY
        states = {link: self._ask(pynvml.nvmlDeviceGetNvLinkState, link) for link in every}
        readable = {link: state for link, state in states.items() if state is not None}
        asked = (self._ask(pynvml.nvmlDeviceGetNvLinkErrorCounter, link, recoveries) for link in readable or every)
        counts = [count for count in asked if count is not None]
        up = sum(state == pynvml.NVML_FEATURE_ENABLED for state in readable.values())
        return {"nvlinks_up": up if readable else None, "nvlink_errors": sum(counts) if counts else None}

    def _throttled(self, policy: int) -> float | None:
        nanoseconds = ask(getattr, self._ask(pynvml.nvmlDeviceGetViolationStatus, policy), "violationTime")
        return _scaled(nanoseconds, 1e-9)


def _reasons(bits: int | None) -> tuple[str, ...] | None:
    return None if bits is None else tuple(name for bit, name in REASONS.items() if bits & bit)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else round(value * unit, 3)
