"""A machine with two GPUs that are not there."""

from types import SimpleNamespace

import pynvml


class FakeNvml:
    """NVML of a machine with two GPUs, the second in MIG mode; queries in `failing` raise."""

    def __init__(self, failing=()):
        self.failing = failing
        self.answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda i: f"gpu{i}",
            "nvmlDeviceGetName": lambda h: "NVIDIA H200" if "gpu" in h else b"NVIDIA H200 MIG 1g.18gb",
            "nvmlDeviceGetUUID": lambda h: {"gpu0": "GPU-aa", "gpu1": "GPU-bb"}.get(h, "MIG-cc"),
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(
                total=(143771 if "gpu" in h else 16384) * 2**20, used=4096 * 2**20
            ),
            "nvmlDeviceGetCudaComputeCapability": lambda h: (9, 0),
            "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId="00000000:FF:1F.7"),
            "nvmlDeviceGetEccMode": lambda h: [1, 0],
            "nvmlDeviceGetMigMode": lambda h: [int(h == "gpu1"), 1],
            "nvmlDeviceGetMaxMigDeviceCount": lambda h: 2,
            "nvmlDeviceGetMigDeviceHandleByIndex": self.slice,
            "nvmlDeviceGetNvLinkState": self.link,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda h: 5,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda h: 16,
            "nvmlDeviceGetEnforcedPowerLimit": lambda h: 700_000,
            "nvmlDeviceGetTemperature": lambda h, sensor: 31,
            "nvmlDeviceGetPersistenceMode": lambda h: 1,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {"GPU-aa": "gpu0", "GPU-bb": "gpu1"}.get(uuid, "mig0"),
            "nvmlDeviceGetUtilizationRates": self.utilisation,
            "nvmlDeviceGetPowerUsage": lambda h: 612_500,
            "nvmlDeviceGetClockInfo": lambda h, kind: {pynvml.NVML_CLOCK_SM: 1755}[kind],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: self.reasons,
            "nvmlDeviceGetTotalEccErrors": lambda h, kind, scope: 2 * kind,
            "nvmlDeviceGetNvLinkErrorCounter": self.link_errors,
            "nvmlDeviceGetViolationStatus": lambda h, policy: SimpleNamespace(
                violationTime=2_500_000_000 * (1 - policy)
            ),
            "nvmlDeviceGetComputeRunningProcesses": lambda h: [],
            "nvmlSystemGetDriverVersion": lambda: "580.95.05",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13020,
        }

    reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle

    def utilisation(self, handle):
        if "mig" in handle:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=97, memory=40)

    def link_errors(self, handle, link, kind):
        if link >= 18:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(link == 3) if kind == pynvml.NVML_NVLINK_ERROR_DL_RECOVERY else 400

    def slice(self, handle, index):
        if index:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "mig0"

    def link(self, handle, link):
        if link >= 18:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(link != 3)

    def install(self, monkeypatch):
        for name, answer in self.answers.items():
            monkeypatch.setattr(pynvml, name, self.refuse if name in self.failing else answer)

    def refuse(self, *_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
