"""What two public benchmarks of many nodes print, recomputed: what their links carried, and what cannot be."""

from __future__ import annotations

import math
from operator import ge

import pandas as pd

from labkit.node import limits
from labkit.tables.claims import Figures, undecided
from labkit.tables.published import published
from labkit.theory.sizes import GB
from lessons.beyond_the_node.tables import published_scaling
from lessons.beyond_the_node.theory import BITS, least_node_bytes, link_needed

_A100, _H100 = "A100 40GB", "H100 80GB"
_SPEC = limits.spec("NVIDIA A100-SXM4-40GB")
_ALL_REDUCE_PASSES = 2
_FLOAT32_BYTES = 4
_ALIKE = 0.02  # of a speed: what two runs of one setting may differ by


def _printed(gpu: str, model: str, gpus: int) -> pd.Series:
    return published("mpt_scaling").set_index(["gpu", "model", "gpus"]).loc[(gpu, model, gpus)]


def _speed(gpu: str, model: str, gpus: int) -> float:
    return float(_printed(gpu, model, gpus)["tokens_per_second_per_gpu"])


def _scaling(gpu: str, model: str, gpus: int) -> pd.Series:
    return published_scaling(published("mpt_scaling")).set_index(["gpu", "model", "gpus"]).loc[(gpu, model, gpus)]


def _flop_by_mfu() -> float:
    most = _SPEC.tflops("bf16") if _SPEC else None
    return float(_printed(_A100, "70b", 128)["mfu_percent"]) / 100 * (most or math.nan)


def _explained_loss() -> float:
    """Return the percent of a step that the printed link takes for its bytes, of 125M on 128 A100s."""
    row = _scaling(_A100, "125m", 128)
    return 100 * BITS * row["sent_gb"] / row["link_gbit_per_second"] / row["step_s"]


def _horovod(network: str, servers: int = 128) -> pd.Series:
    rows = published("horovod_scaling")
    return rows[(rows["network"] == network) & (rows["servers"] == servers)].iloc[0]


def _sent_bytes(row: pd.Series) -> float:
    return least_node_bytes(_ALL_REDUCE_PASSES, _FLOAT32_BYTES * row["parameters"], row["servers"])


def _resnet_least() -> float:
    """Return the percent that ResNet-101 keeps on 128 servers if nothing is hidden, here and in the page's example."""
    row, example = _horovod("ResNet-101"), _horovod("ResNet-101", servers=4)
    link = GB / BITS * row["link_gbit_per_second"]
    step_s = example["gpu_batch"] * example["servers"] * example["gpus_per_server"] / example["images_per_second"]
    alone_s = step_s - _sent_bytes(example) / link
    return 100 * alone_s / (alone_s + _sent_bytes(row) / link)


def _vgg_least_rate() -> float:
    """Return the Gbit/s that VGG-16 needs at least if its loss at the printed rate is all communication."""
    row = _horovod("VGG-16")
    kept, sent = row["efficiency_percent"] / 100, _sent_bytes(row)
    alone_s = BITS * sent / (GB * row["link_gbit_per_second"]) * kept / (1 - kept)
    return link_needed(sent, alone_s / kept, alone_s).least_gbit_per_s


FIGURES = {
    "flop_column": Figures(
        lambda: float(_printed(_A100, "70b", 128)["model_flop_column"]) / 1e12,
        _flop_by_mfu,
        lambda printed, ours: math.isclose(printed, ours, rel_tol=_ALIKE),
    ),
    "link_of_7b": Figures(
        lambda: _scaling(_A100, "7b", 128)["link_gbit_per_second"],
        lambda: _scaling(_A100, "7b", 128)["least_gbit_per_s"],
        ge,
    ),
    "link_of_13b_on_h100": Figures(lambda: None, lambda: _scaling(_H100, "13b", 64)["least_gbit_per_s"], undecided),
    "superlinear_13b": Figures(
        lambda: round(2 * _speed(_A100, "13b", 16) / _speed(_A100, "13b", 8), 2),
        lambda: 2.0,
        lambda printed, most: True if printed <= most * (1 + _ALIKE) else None,
    ),
    "dip_of_1b": Figures(lambda: _speed(_A100, "1b", 32), lambda: _speed(_A100, "1b", 64), undecided),
    "loss_of_125m": Figures(
        lambda: round(100 * (1 - _scaling(_A100, "125m", 128)["efficiency"]), 1),
        _explained_loss,
        lambda lost, explained: True if lost <= explained else None,
    ),
    "resnet_efficiency": Figures(
        lambda: float(_horovod("ResNet-101")["efficiency_percent"]),
        _resnet_least,
        lambda printed, least: least <= printed <= 100,
    ),
    "vgg_efficiency": Figures(lambda: _horovod("VGG-16")["link_gbit_per_second"], _vgg_least_rate, undecided),
}
