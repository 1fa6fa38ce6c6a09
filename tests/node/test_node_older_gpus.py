"""What GPUs before Ampere lack, and pairs of GPUs that cannot read each other's memory."""

import pynvml
import pytest
from fake_nvml import FakeNvml

from labkit.node import Gpu, pairs_without_peer_access, what_is_lacking

GPUS = [Gpu(0), Gpu(1), Gpu(2)]


@pytest.mark.parametrize(
    "capability, lacks", [("7.0", True), ("7.5", True), ("8.0", False), ("12.0", False), (None, False)]
)
def test_older_gpus_lack_bfloat16_and_tf32(capability, lacks):
    said = what_is_lacking(Gpu(0, "Tesla T4", compute_capability=capability))
    assert said.startswith(f"Tesla T4 (compute capability {capability}) has matrix units for float16 alone") == lacks
    assert bool(said) == lacks


def test_pairs_whose_copies_go_through_the_host(monkeypatch):
    nvml = FakeNvml()
    nvml.install(monkeypatch)
    assert pairs_without_peer_access(GPUS) == []
    nvml.answers["nvmlDeviceGetP2PStatus"] = lambda a, b, what: (
        pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED if "gpu2" in (a, b) else pynvml.NVML_P2P_STATUS_OK
    )
    nvml.install(monkeypatch)
    assert pairs_without_peer_access(GPUS) == [(0, 2), (1, 2)]
    assert pairs_without_peer_access(GPUS[2:]) == []
    FakeNvml(failing=("nvmlDeviceGetP2PStatus",)).install(monkeypatch)
    assert pairs_without_peer_access(GPUS) == [], "where the driver does not tell, nothing is said"
