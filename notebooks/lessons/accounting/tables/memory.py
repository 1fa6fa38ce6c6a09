"""Bytes → tables: a model's memory by kind, what a label means, and on how many devices a model fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from labkit.node import limits
from labkit.provenance import of_source
from lessons.accounting import theory
from lessons.accounting.theory import MODELS, UNITS, XXL, Model, devices, number_in, of

_COUNTED = "theory: bytes counted, nothing measured"
GPUS = {  # the datasheet's name
    "RTX 4090": "NVIDIA GeForce RTX 4090",
    "V100 32 GB": "Tesla V100-SXM2-32GB",
    "A100 40 GB": "NVIDIA A100-SXM4-40GB",
    "L40S": "NVIDIA L40S",
    "A100 80 GB": "NVIDIA A100-SXM4-80GB",
    "H100 80 GB": "NVIDIA H100 80GB HBM3",
    "H200": "NVIDIA H200",
    "B200": "NVIDIA B200",
}
_H100 = {"as labelled, 80 GB": (80, "GB"), "as its driver says": (81559, "MiB"), "as if labelled in GiB": (80, "GiB")}
TPU_GB = 95  # a TPU v5p's label (cloud.google.com/tpu/docs/v5p)
TOKENS = 1024


def parts(model: Model = XXL, tokens: int = TOKENS) -> pd.DataFrame:
    """Return a row per kind of memory: bytes, gb (10^9), gib (2^30), and bytes per parameter of the model."""
    table = pd.DataFrame(theory.parts_bytes(model, tokens).items(), columns=["kind", "bytes"])
    for unit in ("GB", "GiB"):
        table[unit.lower()] = number_in(unit, table["bytes"])
    table["bytes_per_parameter"] = table["bytes"] / model.parameters
    return of_source(table, _COUNTED, parameters=model.parameters, tokens=tokens)


def states_bytes(model: Model = XXL) -> int:
    """Return the bytes of parameters, gradients and optimizer states, without activations."""
    return sum(theory.parts_bytes(model, 0).values())


def labels(model: Model = XXL) -> pd.DataFrame:
    """Return a row per reading of an H100's size: its gb and gib, and how many hold the model's states.

    The driver's is what nvidia-smi prints for an H100 80GB HBM3.
    """
    total = states_bytes(model)
    rows = [(reading, of(*label), devices(total, *label)) for reading, label in _H100.items()]
    table = pd.DataFrame(rows, columns=["reading", "device_bytes", "devices"])
    table["gb"], table["gib"] = (number_in(unit, table["device_bytes"]) for unit in ("GB", "GiB"))
    return of_source(table, _COUNTED, total_bytes=total)


def drivers(*nodes: Any) -> pd.DataFrame:
    """Return a row per kind of GPU of these nodes that has a datasheet: its label, and what its driver says it has.

    `over_label` is the driver's bytes over the label's, with GB = 10^9 bytes.
    """
    rows = {
        gpu.name: (gpu.name, known.memory_gb, gpu.memory_mib)
        for node in nodes
        for gpu in node.gpus
        if (known := limits.spec(gpu.name))
    }
    table = pd.DataFrame(rows.values(), columns=["gpu", "label_gb", "driver_mib"])
    driver_bytes = table["driver_mib"] * UNITS["MiB"]
    table["driver_gb"], table["driver_gib"] = (number_in(unit, driver_bytes) for unit in ("GB", "GiB"))
    table["over_label"] = table["driver_gb"] / table["label_gb"]
    return of_source(table, _COUNTED)


def over_devices(
    counts: Sequence[int] = tuple(range(24, 65)), tokens: Sequence[int] = (0, TOKENS), model: Model = XXL
) -> pd.DataFrame:
    """Return a row per number of FSDP shards and of tokens on each: gb a device, in all and by kind.

    Facts: `fewest`, by tokens and unit, on how many shards a device of 95 of that unit is enough; `device_gb`, 95.
    """
    rows = []
    for many in tokens:
        for count in counts:
            held = {kind: float(number_in("GB", size)) for kind, size in theory.held(model, many, count).items()}
            rows.append({"fsdp": count, "tokens": many, "gb": sum(held.values())} | held)
    fewest = {
        many: {unit: theory.smallest_fsdp(model, many, of(TPU_GB, unit)) for unit in ("GB", "GiB")} for many in tokens
    }
    return of_source(pd.DataFrame(rows), _COUNTED, fewest=fewest, device_gb=TPU_GB)


def datasheets() -> dict[str, Any]:
    """Return the datasheet of each of the GPUs of this lab, by its label."""
    return {label: limits.spec(name) for label, name in GPUS.items()}


def fit(
    precision: str = "bfloat16", tokens: int = TOKENS, recompute: bool = True, models: Mapping[str, Model] = MODELS
) -> pd.DataFrame:
    """Return a row per strategy, model and GPU: the fewest such GPUs, NaN where no number is enough, and the status.

    A GPU is taken to hold its label at 10^9 bytes a GB. Contexts and gaps are not counted: some drivers report enough
    beyond the label for them, not all.
    """
    rows = []
    for label, known in datasheets().items():
        able = precision != "bfloat16" or known.tflops("bf16") is not None
        for model_name, model in models.items():
            for strategy in theory.STRATEGIES:
                fewest = theory.fewest_gpus(model, strategy, of(known.memory_gb, "GB"), tokens, precision, recompute)
                status = "ok" if fewest and able else "does not fit" if able else "no bfloat16"
                rows.append((strategy, model_name, label, fewest if status == "ok" else None, status))
    table = pd.DataFrame(rows, columns=["strategy", "model", "gpu", "fewest", "status"]).astype({"fewest": float})
    return of_source(table, _COUNTED, precision=precision, tokens=tokens, recompute=recompute)
