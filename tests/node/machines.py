"""What each topology text must read as, written by hand from the texts."""

from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests" / "fixtures" / "topology", ROOT / "data" / "published" / "topology")


def text(name: str) -> str:
    """The bytes as they are: newline translation would hide CRLF."""
    path = next(folder / f"{name}.txt" for folder in FOLDERS if (folder / f"{name}.txt").exists())
    return path.read_bytes().decode()


def pairs(names: str, kind: str) -> dict[tuple[str, str], str]:
    """Every pair of these devices is of one class."""
    return dict.fromkeys(combinations(names.split(), 2), kind)


def across(some: str, others: str, kind: str) -> dict[tuple[str, str], str]:
    """Every device of the first group to every one of the second."""
    return {(a, b): kind for a in some.split() for b in others.split()}


GPUS4 = "GPU0 GPU1 GPU2 GPU3"
GPUS8 = "GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7"

LINKS = {
    "h200x4": pairs(GPUS4, "NV18"),
    "eml3-4xh100": pairs(GPUS4, "NV18")
    | {("GPU0", "NIC0"): "SYS", ("GPU1", "NIC0"): "NODE", ("GPU2", "NIC0"): "PXB", ("GPU3", "NIC0"): "PIX"},
    "pcie_switches": pairs(GPUS4, "SYS") | {("GPU0", "GPU1"): "PIX", ("GPU2", "GPU3"): "PXB"},
    "two_sockets": pairs("GPU0 GPU1 GPU2 GPU3 GPU4", "NODE")
    | across("GPU0", "GPU1 GPU2 GPU3 GPU4", "SYS")
    | {("GPU1", "GPU2"): "PHB", ("GPU3", "GPU4"): "PHB"},
    "nvswitch_8gpu": pairs(GPUS8, "NV18")
    | across(GPUS8, "NIC0 NIC1 NIC2 NIC3 NIC4 NIC5", "SYS")
    | across(GPUS4, "NIC0 NIC1 NIC2 NIC3", "NODE")
    | across("GPU4 GPU5 GPU6 GPU7", "NIC4 NIC5", "NODE")
    | across("GPU0 GPU1", "NIC0", "PXB")
    | across("GPU2 GPU3", "NIC1", "PXB")
    | {("GPU4", "NIC4"): "PIX", ("GPU6", "NIC5"): "PIX"}
    | across("NIC0 NIC1 NIC2 NIC3", "NIC4 NIC5", "SYS")
    | pairs("NIC0 NIC1 NIC2 NIC3", "NODE")
    | {("NIC2", "NIC3"): "PIX", ("NIC4", "NIC5"): "NODE"},
    "dgx1": pairs(GPUS8, "SYS")
    | {("GPU0", "GPU1"): "NV1", ("GPU0", "GPU2"): "NV1", ("GPU0", "GPU3"): "NV2", ("GPU0", "GPU4"): "NV2"}
    | {("GPU1", "GPU2"): "NV2", ("GPU1", "GPU3"): "NV1", ("GPU1", "GPU5"): "NV2"}
    | {("GPU2", "GPU3"): "NV2", ("GPU2", "GPU6"): "NV1", ("GPU3", "GPU7"): "NV1"}
    | {("GPU4", "GPU5"): "NV1", ("GPU4", "GPU6"): "NV1", ("GPU4", "GPU7"): "NV2"}
    | {("GPU5", "GPU6"): "NV2", ("GPU5", "GPU7"): "NV1", ("GPU6", "GPU7"): "NV2"}
    | across(GPUS8, "mlx5_0 mlx5_1 mlx5_2 mlx5_3", "SYS")
    | across("GPU0 GPU1", "mlx5_0", "PIX")
    | across("GPU0 GPU1", "mlx5_1", "PHB")
    | across("GPU2 GPU3", "mlx5_0", "PHB")
    | across("GPU2 GPU3", "mlx5_1", "PIX")
    | across("GPU4 GPU5", "mlx5_2", "PIX")
    | across("GPU4 GPU5", "mlx5_3", "PHB")
    | across("GPU6 GPU7", "mlx5_2", "PHB")
    | across("GPU6 GPU7", "mlx5_3", "PIX")
    | pairs("mlx5_0 mlx5_1 mlx5_2 mlx5_3", "SYS")
    | {("mlx5_0", "mlx5_1"): "PHB", ("mlx5_2", "mlx5_3"): "PHB"},
    "old_driver": pairs(GPUS4, "SYS") | {("GPU0", "GPU1"): "PHB", ("GPU2", "GPU3"): "PHB"},
    "nvlink_bridges": pairs(GPUS4, "SYS") | {("GPU0", "GPU1"): "NV4", ("GPU2", "GPU3"): "NV4"},
    "l40s": pairs(GPUS4, "SYS")
    | across(GPUS4, "NIC0 NIC1", "SYS")
    | across("GPU2 GPU3", "NIC0 NIC1", "NODE")
    | {("GPU0", "GPU1"): "NODE", ("GPU2", "GPU3"): "NODE", ("NIC0", "NIC1"): "PIX"},
    "gb200": pairs(GPUS4, "NV18")
    | across(GPUS4, "NIC0 NIC1 NIC2 NIC3", "SYS")
    | pairs("NIC0 NIC1 NIC2 NIC3", "SYS")
    | {("NIC2", "NIC3"): "PIX"},
    "mig": {("GPU0", "GPU1"): "SYS"},
    "one_gpu": {},
    "one_gpu_blank": {},
    "no_affinity": {("GPU0", "GPU1"): "PIX"},
    "no_gpu": {},
}
LINKS["odd_cpu_list"] = LINKS["dgx1"]

LINKS["dgx1-8xv100"] = {pair: kind for pair, kind in LINKS["dgx1"].items() if "mlx5" not in "".join(pair)}

NUMA_NODES = {
    "h200x4": {0: "GPU0 GPU1 GPU2 GPU3"},
    "eml3-4xh100": {0: "GPU0", 1: "GPU1 GPU2 GPU3 NIC0"},
    "pcie_switches": {0: "GPU0 GPU1", 1: "GPU2 GPU3"},
    "two_sockets": {0: "GPU1 GPU2 GPU3 GPU4", 1: "GPU0"},
    "nvswitch_8gpu": {0: "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 NIC2 NIC3", 1: "GPU4 GPU5 GPU6 GPU7 NIC4 NIC5"},
    "dgx1-8xv100": {0: "GPU0 GPU1 GPU2 GPU3", 1: "GPU4 GPU5 GPU6 GPU7"},
    "dgx1": {None: GPUS8 + " mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
    "odd_cpu_list": {None: GPUS8 + " mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
    "old_driver": {None: GPUS4},
    "nvlink_bridges": {3: "GPU3", None: "GPU0 GPU1 GPU2"},
    "l40s": {0: "GPU0 GPU1", 1: "GPU2 GPU3 NIC0 NIC1"},
    "gb200": {0: "GPU0 GPU1", 1: "GPU2 GPU3", None: "NIC0 NIC1 NIC2 NIC3"},
    "mig": {0: "GPU0", 1: "GPU1"},
    "one_gpu": {0: "GPU0"},
    "one_gpu_blank": {None: "GPU0"},
    "no_affinity": {None: "GPU0 GPU1"},
    "no_gpu": {},
}

# (device, its CPUs, its label) where they tell something
CPUS = {
    "h200x4": {"GPU3": range(64)},
    "eml3-4xh100": {"GPU0": range(20), "GPU1": range(32, 52), "NIC0": []},
    "pcie_switches": {"GPU2": [*range(8, 16), *range(24, 32)]},
    "two_sockets": {"GPU0": [*range(8, 16), *range(24, 32)], "GPU4": [*range(8), *range(16, 24)]},
    "nvswitch_8gpu": {"GPU3": [*range(56), *range(112, 168)], "GPU4": [*range(56, 112), *range(168, 224)]},
    "dgx1-8xv100": {"GPU7": [*range(20, 40), *range(60, 80)]},
    "dgx1": {"GPU7": [*range(20, 40), *range(60, 80)], "mlx5_0": []},
    "odd_cpu_list": {"GPU4": [*range(20, 40), *range(60, 80)], "GPU5": [], "GPU6": [*range(20, 40), *range(60, 80)]},
    "old_driver": {"GPU0": [*range(10), *range(20, 30)]},
    "nvlink_bridges": {"GPU2": range(16, 32)},
    "l40s": {"GPU3": [*range(96, 192), *range(288, 384)]},
    "gb200": {"GPU1": range(72), "GPU2": range(72, 144)},
    "mig": {"GPU1": range(32, 64)},
    "one_gpu": {"GPU0": range(8)},
    "one_gpu_blank": {"GPU0": []},
    "no_affinity": {"GPU1": []},
}

# What of a device's affinity is printed but cannot be read.
UNREAD = {"odd_cpu_list": {"GPU5": "CPU Affinity 20-39,60-49"}}

LABELS = {
    "eml3-4xh100": {"NIC0": "mlx5_0"},
    "nvswitch_8gpu": {"NIC3": "mlx5_3", "NIC4": "mlx5_bond_0", "NIC5": "mlx5_11"},
    "dgx1": {"mlx5_2": "mlx5_2"},
}
