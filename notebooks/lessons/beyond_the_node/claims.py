"""What two public benchmarks of many nodes print, recomputed: what their links carried, and what cannot be."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from labkit.node import limits
from labkit.tables.claims import Stated, undecided
from labkit.tables.published import published
from labkit.theory.lines import GB
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


def _two_efficiencies() -> str:
    rows = published("horovod_scaling").dropna(subset="efficiency_percent")["efficiency_percent"]
    return f"{rows.iloc[0]:.0f} and {rows.iloc[1]:.0f} %"


_ROWS: tuple[dict[str, Any], ...] = (
    {
        "name": "flop_column",
        "report": "mpt",
        "where": 'column "Model TFLOP"',
        "says": "One A100 that trains the 70B model does this",
        "printed": lambda: float(_printed(_A100, "70b", 128)["model_flop_column"]) / 1e12,
        "recomputed": _flop_by_mfu,
        "recomputes": "its MFU of 312 TFLOP/s",
        "holds": lambda printed, ours: math.isclose(printed, ours, rel_tol=_ALIKE),
        "unit": "TFLOP/s",
        "digits": 4,
        "reason": "49 times what an A100 can. In all A100 rows it is 100 times the MFU: a percentage was not divided.",
    },
    {
        "name": "link_of_7b",
        "report": "mpt",
        "where": "table of A100s",
        "says": "1600 Gbit/s between nodes carry 7B on 128 GPUs",
        "printed": lambda: _scaling(_A100, "7b", 128)["link_gbit_per_second"],
        "recomputed": lambda: _scaling(_A100, "7b", 128)["least_gbit_per_s"],
        "recomputes": "least rate, if all is hidden",
        "holds": lambda printed, least: least <= printed,
        "unit": "Gbit/s",
        "reason": "A step of 10 s sends 37 GB. A fiftieth of the rate could do, so this row does not test the link.",
    },
    {
        "name": "link_of_13b_on_h100",
        "report": "mpt",
        "where": "table of H100s",
        "says": "13B on 64 GPUs is as fast per GPU as on 8; no link is named",
        "printed": lambda: None,
        "recomputed": lambda: _scaling(_H100, "13b", 64)["least_gbit_per_s"],
        "recomputes": "least rate per node, without reduction in the switch",
        "holds": undecided,
        "unit": "Gbit/s",
        "reason": "A step of 0.85 s sends 67 GB. One card of 400 Gbit/s per node would not be enough.",
    },
    {
        "name": "superlinear_13b",
        "report": "mpt",
        "where": "table of A100s",
        "says": "13B on 16 GPUs is this many times as fast as on 8",
        "printed": lambda: round(2 * _speed(_A100, "13b", 16) / _speed(_A100, "13b", 8), 2),
        "recomputed": lambda: 2.0,
        "recomputes": "the most by twice the GPUs alone",
        "holds": lambda printed, most: True if printed <= most * (1 + _ALIKE) else None,
        "unit": "×",
        "reason": "The micro-batch grew from 4 to 10 and 16 accumulations became 1: two settings are compared.",
    },
    {
        "name": "dip_of_1b",
        "report": "mpt",
        "where": "table of A100s",
        "says": "1B on 32 GPUs: tokens/s per GPU",
        "printed": lambda: _speed(_A100, "1b", 32),
        "recomputed": lambda: _speed(_A100, "1b", 64),
        "recomputes": "on 64 GPUs, the same micro-batch",
        "holds": undecided,
        "unit": "tokens/s",
        "digits": 5,
        "reason": "A node sends more on 8 nodes than on 4, so the link cannot explain this order: one run was slow.",
    },
    {
        "name": "loss_of_125m",
        "report": "mpt",
        "where": "table of A100s",
        "says": "125M on 128 GPUs loses this part of one node's speed",
        "printed": lambda: round(100 * (1 - _scaling(_A100, "125m", 128)["efficiency"]), 1),
        "recomputed": _explained_loss,
        "recomputes": "the most that 1600 Gbit/s explain",
        "holds": lambda lost, explained: True if lost <= explained else None,
        "unit": "%",
        "reason": "The bytes take 3.5 of 430 ms. The rest may be latency, slow ranks, or steps without accumulation.",
    },
    {
        "name": "resnet_efficiency",
        "report": "horovod",
        "where": "text",
        "says": "ResNet-101 keeps 90 % on 128 servers with 25 Gbit/s",
        "printed": lambda: float(_horovod("ResNet-101")["efficiency_percent"]),
        "recomputed": _resnet_least,
        "recomputes": "at least, if its example on 4 servers has the same link and nothing is hidden",
        "holds": lambda printed, least: least <= printed <= 100,
        "unit": "%",
        "reason": "353 MB per step take 0.11 s beside 0.53 s of computing. 90 % are possible: about half is hidden.",
    },
    {
        "name": "vgg_efficiency",
        "report": "horovod",
        "where": "text",
        "says": "VGG-16 keeps 68 % on 128 servers with 25 Gbit/s",
        "printed": lambda: _horovod("VGG-16")["link_gbit_per_second"],
        "recomputed": _vgg_least_rate,
        "recomputes": "least rate, if the loss is communication alone",
        "holds": undecided,
        "unit": "Gbit/s",
        "reason": "1.10 GB take 0.35 s. It prints no speed of one GPU, so what is hidden stays open.",
    },
    {
        "name": "one_efficiency_for_two",
        "report": "horovod",
        "where": "text",
        "says": "Inception V3 and ResNet-101 both keep 90 %",
        "printed": _two_efficiencies,
        "recomputed": lambda: None,
        "holds": undecided,
        "reason": "Two networks can lose the same share. Two rounded percentages do not say what the link carried.",
        "chosen": False,
    },
)
CLAIMS = tuple(Stated(**row) for row in _ROWS)
