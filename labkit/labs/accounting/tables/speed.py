"""Computing against communicating, by batch, by mesh, by knob and by machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf

import numpy as np
import pandas as pd

from labkit.labs.accounting.tables.memory import GPUS
from labkit.labs.accounting.theory.memory import held
from labkit.labs.accounting.theory.models import XXL, Model
from labkit.labs.accounting.theory.sizes import number_in
from labkit.labs.accounting.theory.speed import COURSE, Mesh, least_tokens, times
from labkit.node import limits

SOURCE = "theory: How to Scale Your Model (2025), part 5; nothing measured"
OVERLAPS = {"at once": True, "in turn": False}
KNOBS = {
    "as asked": {},
    "links twice as fast": {"axis_bytes_per_s": 2 * Mesh.axis_bytes_per_s},
    "a third axis for FSDP": {"fsdp_axes": 3},
    "weights travel in 8 bits": {"weight_bytes": 1},
    "all travels in 8 bits": {"weight_bytes": 1, "activation_bytes": 1},
    "8 × 8 devices": {"fsdp": 8, "tensor": 8},
    "32 × 2 devices": {"fsdp": 32, "tensor": 2},
    "half the devices, 8 × 4": {"fsdp": 8},
    "compute twice as fast": {"flop_per_s": 2 * Mesh.flop_per_s},
}
BESIDE = 8  # GPUs in a node


def over_tokens(mesh: Mesh = COURSE, model: Model = XXL, tokens: Sequence[float] | None = None) -> pd.DataFrame:
    """Give a row a batch (tokens in all): ms of one block's forward to compute, gather weights, exchange activations.

    attrs: `bounds`, the batch from which it is compute-bound by OVERLAPS.
    """
    tokens = np.geomspace(1e3, 1e6, 61) if tokens is None else tokens
    rows = [(batch, *(1e3 * seconds for seconds in times(mesh, model, batch))) for batch in tokens]
    table = pd.DataFrame(rows, columns=["tokens", "math_ms", "fsdp_ms", "tensor_ms"])
    return _told(table, bounds={name: least_tokens(mesh, model, at_once) for name, at_once in OVERLAPS.items()})


def bounds(mesh: Mesh = COURSE, model: Model = XXL) -> pd.DataFrame:
    """Give a row a way to communicate: the least tokens in all and a device, and gb a device with that batch."""
    rows = []
    for name, at_once in OVERLAPS.items():
        tokens = least_tokens(mesh, model, at_once)
        gb = inf
        if tokens < inf:
            gb = float(number_in("GB", sum(held(model, ceil(tokens / mesh.fsdp), mesh.fsdp, mesh.tensor).values())))
        rows.append((name, tokens, tokens / mesh.devices, gb))
    return _told(pd.DataFrame(rows, columns=["weights and activations", "tokens", "tokens_per_device", "gb"]))


def knobs(mesh: Mesh = COURSE, model: Model = XXL) -> pd.DataFrame:
    """Give a row a knob turned alone: the least tokens in all and a device, in turn, and over those as asked."""
    rows = []
    for name, turned in KNOBS.items():
        other = replace(mesh, **turned)
        at_once, in_turn = (least_tokens(other, model, way) for way in OVERLAPS.values())
        rows.append((name, other.devices, at_once, in_turn, in_turn / other.devices))
    table = pd.DataFrame(rows, columns=["knob", "devices", "at_once", "in_turn", "in_turn_per_device"])
    table["times"] = table["in_turn"] / table["in_turn"].iloc[0]
    return _told(table)


def splits(devices: int = 64, mesh: Mesh = COURSE, model: Model = XXL) -> pd.DataFrame:
    """Give a row a power of 2 of tensor shards, the rest of the devices FSDP's: the least tokens, NaN for never."""
    rows = []
    for tensor in (2**power for power in range(devices.bit_length()) if devices % 2**power == 0):
        other = replace(mesh, fsdp=devices // tensor, tensor=tensor)
        rows.append((tensor, other.fsdp, *(least_tokens(other, model, way) for way in OVERLAPS.values())))
    table = pd.DataFrame(rows, columns=["tensor", "fsdp", "at_once", "in_turn"]).replace(inf, float("nan"))
    return _told(table, devices=devices)


def machines(*nodes) -> pd.DataFrame:
    """Give a row a GPU with a datasheet: tokens a GPU from which FSDP over 8 of them is compute-bound.

    Per token 2 FLOP a parameter, per parameter 2 bytes, of which a ring sends (n − 1)/n through a GPU's links in one
    direction: (n − 1)/n · C/W tokens. `link` is what W is of: NVLink, or PCIe. `here`: one of these nodes has it.
    The TPU's W are both directions of one axis, as in the book.
    """
    there = {limits.spec(gpu.name) for node in nodes for gpu in node.gpus}
    rows = []
    for label, name in GPUS.items():
        known = limits.spec(name)
        rate, link = known.tflops("bf16") or known.tflops("fp16"), limits.ring_bus_limit_gb_per_s(known)
        share = (BESIDE - 1) / BESIDE
        rows.append(
            (label, rate, link, "NVLink" if known.nvlink_links else "PCIe", share * rate * 1e3 / link, known in there)
        )
    tpu = COURSE
    rows.append(
        (
            "TPU v5p, one axis",
            tpu.flop_per_s / 1e12,
            tpu.axis_bytes_per_s / 1e9,
            "ICI",
            tpu.flop_per_s / tpu.axis_bytes_per_s,
            False,
        )
    )
    table = pd.DataFrame(rows, columns=["device", "tflops", "gb_per_s", "link", "tokens", "here"])
    table = table.sort_values("tokens", ignore_index=True)
    table.attrs = {"source": "theory: datasheets' dense 16-bit rates and links", "small": False}
    return table


def _told(table: pd.DataFrame, **more) -> pd.DataFrame:
    table.attrs = {"source": SOURCE, "small": False, **more}
    return table
