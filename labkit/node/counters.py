"""What the driver counts of one GPU: its state at one moment, and its samples while a run goes on.

Every query may fail, by itself or with the whole GPU: what is not answered is left out, and never becomes zero.
"""

from __future__ import annotations

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


class Counters:
    """The counters of one GPU, or MIG slice; NVML must be open (`gpus.nvml`) while they are read."""

    def __init__(self, gpu: Gpu):
        self.gpu = gpu
        self.is_slice = (gpu.uuid or "").startswith("MIG-")
        by_uuid = (pynvml.nvmlDeviceGetHandleByUUID, gpu.uuid)
        self._handle = ask(*by_uuid) if self.is_slice else ask(pynvml.nvmlDeviceGetHandleByIndex, gpu.index)

    def sample(self) -> dict[str, Any]:
        """Return utilisation, memory, power, clock and temperature now, as far as known; {} of a GPU that is silent."""
        reasons = _reasons(self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons))
        readings = self._readings() | {"throttle_reasons": reasons if reasons is None else list(reasons)}
        return {name: value for name, value in readings.items() if value is not None}

    def state(self) -> GpuState:
        """Return all that is known of the GPU now; a GPU that does not answer has a state of None."""
        uncorrected = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        state = GpuState(
            self.gpu.index,
            **self._readings(),
            throttle_reasons=_reasons(self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)),
            power_limit_w=_scaled(self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit), 1e-3),
            ecc_uncorrected=self._ask(pynvml.nvmlDeviceGetTotalEccErrors, *uncorrected),
            nvlink_errors=self._link_errors(),
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

    def _readings(self) -> dict[str, Any]:
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        return {
            "utilisation_percent": ask(getattr, self._ask(pynvml.nvmlDeviceGetUtilizationRates), "gpu"),
            "memory_mib": None if memory is None else memory.used // 2**20,
            "power_w": _scaled(self._ask(pynvml.nvmlDeviceGetPowerUsage), 1e-3),
            "sm_clock_mhz": self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "temperature_c": self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
        }

    def _link_errors(self) -> int | None:
        """Return the recoveries of all NVLinks that exist: each query takes a millisecond."""
        every, recoveries = range(pynvml.NVML_NVLINK_MAX_LINKS), pynvml.NVML_NVLINK_ERROR_DL_RECOVERY
        readable = [link for link in every if self._ask(pynvml.nvmlDeviceGetNvLinkState, link) is not None]
        asked = (self._ask(pynvml.nvmlDeviceGetNvLinkErrorCounter, link, recoveries) for link in readable or every)
        counts = [count for count in asked if count is not None]
        return sum(counts) if counts else None

    def _throttled(self, policy: int) -> float | None:
        nanoseconds = ask(getattr, self._ask(pynvml.nvmlDeviceGetViolationStatus, policy), "violationTime")
        return _scaled(nanoseconds, 1e-9)


def _reasons(bits: int | None) -> tuple[str, ...] | None:
    return None if bits is None else tuple(name for bit, name in REASONS.items() if bits & bit)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else round(value * unit, 3)
