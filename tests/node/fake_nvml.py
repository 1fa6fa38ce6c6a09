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
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=(143771 if "gpu" in h else 16384) * 2**20),
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
            "nvmlSystemGetDriverVersion": lambda: "580.95.05",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13020,
        }

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
