"""What two public benchmarks of many nodes print, recomputed: what their links carried, and what cannot be."""

from __future__ import annotations

import math

import pandas as pd

from labkit.node import limits
from labkit.tables.claims import Figure, Verdict, claim
from labkit.tables.published import published
from labkit.theory.lines import GB
from lessons.beyond_the_node.tables.projection import published_scaling
from lessons.beyond_the_node.theory.levels import least_node_bytes
from lessons.beyond_the_node.theory.steps import BITS, link_needed

_MPT, _HOROVOD = "mpt", "horovod"
_A100, _H100 = "A100 40GB", "H100 80GB"
_SPEC = limits.spec("NVIDIA A100-SXM4-40GB")
_ALL_REDUCE_PASSES = 2
_FLOAT32_BYTES = 4
_ALIKE = 0.02  # of a speed: what two runs of one setting may differ by


def _printed() -> pd.DataFrame:
    return published("mpt_scaling").set_index(["gpu", "model", "gpus"])


def _scaling() -> pd.DataFrame:
    return published_scaling(published("mpt_scaling")).set_index(["gpu", "model", "gpus"])


def _speed(gpu: str, model: str, gpus: int) -> float:
    return float(_printed().loc[(gpu, model, gpus), "tokens_per_second_per_gpu"])


def _horovod(network: str, servers: int = 128) -> pd.Series:
    rows = published("horovod_scaling")
    return rows[(rows["network"] == network) & (rows["servers"] == servers)].iloc[0]


@claim(_MPT, 'column "Model TFLOP": one A100 that trains the 70B model', "TFLOP/s", digits=4)
def flop_column() -> tuple[Figure, Figure, Verdict]:
    """An A100 does at most 312 TFLOP/s in bfloat16, so the column is 49 times what is possible. In all rows of the A100
    it is 100 times the printed MFU of 312 TFLOP/s: a percentage was not divided by 100. In the table of the H100 the
    column agrees with the MFU."""
    row = _printed().loc[(_A100, "70b", 128)]
    most = _SPEC.tflops("bf16") if _SPEC else None
    assert most is not None, "the datasheet has the rate"
    found = float(row["mfu_percent"]) / 100 * most
    printed = float(row["model_flop_column"]) / 1e12
    return printed, found, math.isclose(printed, found, rel_tol=_ALIKE)


@claim(_MPT, "1600 Gbit/s between nodes carry 7B on 128 A100s", "Gbit/s", recomputes="least rate", explained=True)
def link_of_7b() -> tuple[Figure, Figure, Verdict]:
    """In a step of 10 s each node must send at least 37 GB: weights gathered twice and gradients scattered once, at
    2 bytes per parameter, 15/16 of each. The printed link moves that in 0.19 s. A link with a fiftieth of its rate
    would do if all of it is hidden. So this row does not test the link: large micro-batches made the step long."""
    row = _scaling().loc[(_A100, "7b", 128)]
    return row["link_gbit_per_second"], row["least_gbit_per_s"], row["least_gbit_per_s"] <= row["link_gbit_per_second"]


@claim(_MPT, "13B on 64 H100s is as fast per GPU as on 8; no link is named", "Gbit/s", recomputes="least rate per node")
def link_of_13b_on_h100() -> tuple[Figure, Figure, Verdict]:
    """With 2 sequences per GPU a step takes 0.85 s, and each node must send at least 67 GB in it. So each node had at
    least 633 Gbit/s in one direction, and all communication was hidden. One card of 400 Gbit/s per node would not be
    enough."""
    return None, _scaling().loc[(_H100, "13b", 64), "least_gbit_per_s"], None


@claim(_MPT, "13B: speed-up of 16 A100s over 8", "×", recomputes="the most that twice the GPUs give")
def superlinear_13b() -> tuple[Figure, Figure, Verdict]:
    """No link gives more than twice the speed. On 16 GPUs each holds a smaller shard, so the micro-batch grew from 4 to
    10 sequences and 16 accumulations became 1. The row compares two settings, not two numbers of nodes."""
    printed = 2 * _speed(_A100, "13b", 16) / _speed(_A100, "13b", 8)
    return round(printed, 2), 2.0, printed <= 2.0 * (1 + _ALIKE)


@claim(_MPT, "1B on 32 A100s: tokens/s per GPU", "tokens/s", digits=5, recomputes="64 A100s, the same micro-batch")
def dip_of_1b() -> tuple[Figure, Figure, Verdict]:
    """With the same micro-batch, 64 GPUs are 22 % faster per GPU than 32. A node sends more on 8 nodes than on 4, so
    the link cannot explain this order. Something else slowed this one run: for example one slow node, for which all
    other nodes wait."""
    few, many = _speed(_A100, "1b", 32), _speed(_A100, "1b", 64)
    return few, many, few >= many * (1 - _ALIKE)


@claim(
    _MPT, "125M on 128 A100s: the lost part of one node's speed", "%", recomputes="the most that 1600 Gbit/s explain"
)
def loss_of_125m() -> tuple[Figure, Figure, Verdict]:
    """The link moves a step's bytes in 3.5 ms of 430 ms, even if nothing is hidden. The other lost 8 % are no matter of
    bandwidth. The table does not tell whether they are latency, slow ranks, or the work of each new step without
    accumulation."""
    row = _scaling().loc[(_A100, "125m", 128)]
    explained = BITS * row["sent_gb"] / row["link_gbit_per_second"] / row["step_s"]
    lost = 1 - row["efficiency"]
    return round(100 * lost, 1), 100 * explained, True if lost <= explained else None


def _example_step_s() -> float:
    row = _horovod("ResNet-101", servers=4)
    return float(row["gpu_batch"] * row["servers"] * row["gpus_per_server"] / row["images_per_second"])


def _sent_bytes(row: pd.Series) -> float:
    return least_node_bytes(_ALL_REDUCE_PASSES, _FLOAT32_BYTES * row["parameters"], row["servers"])


@claim(
    _HOROVOD, "ResNet-101 keeps 90 % on 128 servers with 25 Gbit/s", "%", recomputes="at least, if nothing is hidden"
)
def resnet_efficiency() -> tuple[Figure, Figure, Verdict]:
    """In the page's example on 4 servers a step of 64 images takes 0.62 s. If its link is the same and hides nothing,
    computing takes 0.53 s of it. On 128 servers each server sends 353 MB per step, which takes 0.11 s. So 82 % would
    remain without overlap, and 100 % with full overlap. The printed 90 % are possible: about half is hidden."""
    link = GB / BITS * (row := _horovod("ResNet-101"))["link_gbit_per_second"]
    alone_s = _example_step_s() - _sent_bytes(_horovod("ResNet-101", servers=4)) / link
    least = alone_s / (alone_s + _sent_bytes(row) / link)
    printed = float(row["efficiency_percent"])
    return printed, 100 * least, 100 * least <= printed <= 100


@claim(
    _HOROVOD,
    "VGG-16 keeps 68 % on 128 servers with 25 Gbit/s",
    "Gbit/s",
    recomputes="least rate, at 64 images in 0.75 s",
)
def vgg_efficiency() -> tuple[Figure, Figure, Verdict]:
    """VGG-16 has 3.1 times the parameters of ResNet-101: each server sends 1.10 GB per step, which takes 0.35 s at
    25 Gbit/s. A third of the speed is lost to this if a GPU alone takes 0.75 s per step and nothing is hidden, or if
    it takes less and a part is hidden. The page prints no speed of a single GPU, so this cannot be decided."""
    row = _horovod("VGG-16")
    kept, sent = row["efficiency_percent"] / 100, _sent_bytes(row)
    transfer_s = BITS * sent / (GB * row["link_gbit_per_second"])
    alone_s = transfer_s * kept / (1 - kept)
    return row["link_gbit_per_second"], link_needed(sent, alone_s / kept, alone_s).least_gbit_per_s, None


@claim(_HOROVOD, "Inception V3 and ResNet-101 both keep 90 %")
def one_efficiency_for_two() -> tuple[Figure, Figure, Verdict]:
    """The page shows a chart and prints these numbers only: no images per second, no batch, and no spread for 512 GPUs.
    Two networks with different gradients and different computing can lose the same share. From two rounded percentages
    nobody can say what the link carried."""
    rows = published("horovod_scaling").dropna(subset="efficiency_percent")
    return f"{rows['efficiency_percent'].iloc[0]:.0f} and {rows['efficiency_percent'].iloc[1]:.0f} %", None, None
