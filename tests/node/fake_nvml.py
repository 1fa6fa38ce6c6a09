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
                total=(143771 if "gpu" in h else 16384) * 2**20,
                used=4096 * 2**20,
                free=(139675 if "gpu" in h else 12288) * 2**20,
            ),
            "nvmlDeviceGetCudaComputeCapability": lambda h: (9, 0),
            "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId="00000000:FF:1F.7"),
            "nvmlDeviceGetEccMode": lambda h: [1, 0],
            "nvmlDeviceGetMigMode": lambda h: [int(h == "gpu1"), 1],
            "nvmlDeviceGetMaxMigDeviceCount": lambda h: 2,
            "nvmlDeviceGetMigDeviceHandleByIndex": self.slice,
            "nvmlDeviceGetNvLinkState": self.link,
            "nvmlDeviceGetTopologyCommonAncestor": self.refuse,
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
            "nvmlDeviceGetP2PStatus": lambda a, b, what: pynvml.NVML_P2P_STATUS_OK,
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


class HealthyNvml(FakeNvml):
    """NVML of a machine with two sound H200s; `sick` replaces what some queries answer."""

    def __init__(self, failing=(), **sick):
        super().__init__(failing)
        self.answers |= {
            "nvmlDeviceGetMigMode": lambda h: [0, 0],
            "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId={"gpu0": "00000000:3B:00.0"}.get(h, "0:5D:00.0")),
            "nvmlDeviceGetNvLinkState": lambda h, link: int(self.link(h, link) in (0, 1)),
            "nvmlDeviceGetNvLinkErrorCounter": lambda h, link, kind: 0,
            "nvmlDeviceGetTotalEccErrors": lambda h, kind, scope: 0,
            "nvmlDeviceGetRemappedRows": lambda h: (0, 0, 0, 0),
            "nvmlDeviceGetRowRemapperHistogram": lambda h: SimpleNamespace(max=640, high=0, partial=0, low=0, none=0),
            "nvmlDeviceGetRetiredPagesPendingStatus": self.lack,
            "nvmlDeviceGetFieldValues": lambda h, fields: [self.field(0)],
            "nvmlDeviceGetPcieReplayCounter": lambda h: 0,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 16,
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda h: 1,
            "nvmlDeviceGetPerformanceState": lambda h: 0,
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda h: 700_000,
            "nvmlDeviceGetTemperatureThreshold": lambda h, which: 87,
            "nvmlDeviceGetVbiosVersion": lambda h: "96.00.BC.00.01",
        } | sick

    def lack(self, *_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def forbid(self, *_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    @staticmethod
    def field(value):
        return SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, value=SimpleNamespace(uiVal=value))


class WiredNvml(FakeNvml):
    """NVML of a machine with some GPUs: `levels[(a, b)]` is the PCIe level of a pair.

    `ends[gpu]` lists what each NVLink of a GPU leads to: another GPU's number, or the name of a type of device.
    """

    def __init__(self, gpus, levels, ends, failing=()):
        super().__init__(failing)
        self.levels, self.ends = levels, ends
        types = {"switch": pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, "cpu": pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU}
        self.answers |= {
            "nvmlDeviceGetCount": lambda: gpus,
            "nvmlDeviceGetMigMode": lambda h: [0, 0],
            "nvmlDeviceGetUUID": lambda h: f"GPU-{h[3:]}",
            "nvmlDeviceGetPciInfo": lambda h: self.pci(int(h[3:])),
            "nvmlDeviceGetTopologyCommonAncestor": self.level,
            "nvmlDeviceGetNvLinkState": lambda h, link: int(self.end(h, link) is not None),
            "nvmlDeviceGetNvLinkRemoteDeviceType": lambda h, link: types.get(self.end(h, link), 0),
            "nvmlDeviceGetNvLinkRemotePciInfo": self.remote,
        }

    def pci(self, number):
        return SimpleNamespace(busId=f"00000000:{number:02X}:00.0")

    def end(self, handle, link):
        ends = self.ends.get(int(handle[3:]), [])
        if link >= len(ends):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return ends[link]

    def remote(self, handle, link):
        end = self.end(handle, link)
        return self.pci(end if isinstance(end, int) else 0xF0)

    def level(self, a, b):
        return self.levels[tuple(sorted((int(a[3:]), int(b[3:]))))]
