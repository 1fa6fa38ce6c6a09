"""Theory → tables: memory by kind and device, the least compute-bound batch, and recorded training beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import fact, of_run, of_source
from labkit.tables.alpha_beta import fits
from labkit.tables.rates import strategies
from labkit.theory.alpha_beta import Link
from labkit.theory.gpt import flop_per_token
from labkit.theory.traffic import Sent, through_a_link, traffic
from lessons.accounting import theory
from lessons.accounting.theory import (
    COURSE_MESH,
    MODELS,
    NODE,
    UNITS,
    XXL,
    Mesh,
    Model,
    bytes_of,
    devices,
    held,
    least_tokens,
    number_in,
    times,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run

_COUNTED = "theory: bytes counted, nothing measured"
GPUS = {  # the datasheet's name
    "RTX 4090": "NVIDIA GeForce RTX 4090",
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
    rows = [(reading, bytes_of(*label), devices(total, *label)) for reading, label in _H100.items()]
    table = pd.DataFrame(rows, columns=["reading", "device_bytes", "devices"])
    table["gb"], table["gib"] = (number_in(unit, table["device_bytes"]) for unit in ("GB", "GiB"))
    return of_source(table, _COUNTED, total_bytes=total)


def drivers(*nodes: Any) -> pd.DataFrame:
    """Return a row per kind of GPU of these nodes that has a datasheet: its label, and what its driver says it has.

    `over_label` is the driver's bytes over the label's, with GB = 10^9 bytes.
    """
    rows = {
        gpu.name: (gpu.name, spec.memory_gb, gpu.memory_mib)
        for node in nodes
        for gpu in node.gpus
        if (spec := limits.spec(gpu.name))
    }
    table = pd.DataFrame(rows.values(), columns=["gpu", "label_gb", "driver_mib"])
    driver_bytes = table["driver_mib"] * UNITS["MiB"]
    table["driver_gb"], table["driver_gib"] = (number_in(unit, driver_bytes) for unit in ("GB", "GiB"))
    table["over_label"] = table["driver_gb"] / table["label_gb"]
    return of_source(table, _COUNTED)


def over_devices(tokens: Sequence[int] = (0, TOKENS)) -> pd.DataFrame:
    """Return a row per number of FSDP shards and of tokens on each: gb a device, in all and by kind.

    Facts: `fewest`, by tokens and unit, on how many shards a device of 95 of that unit is enough; `own_tokens`, on how
    many one of 95 GB is, where each has tokens of its own and keeps all of their activations; `device_gb`, 95.
    """
    rows = []
    for many in tokens:
        for count in range(24, 65):
            sizes = {kind: float(number_in("GB", size)) for kind, size in held(XXL, many, count).items()}
            rows.append({"fsdp": count, "tokens": many, "gb": sum(sizes.values())} | sizes)
    fewest = {
        many: {unit: theory.smallest_fsdp(XXL, many, bytes_of(TPU_GB, unit)) for unit in ("GB", "GiB")}
        for many in tokens
    }
    own = {many: _with_own_tokens(many) for many in tokens}
    return of_source(pd.DataFrame(rows), _COUNTED, fewest=fewest, own_tokens=own, device_gb=TPU_GB)


def _with_own_tokens(tokens: int) -> int | None:
    left_bytes = bytes_of(TPU_GB, "GB") - theory.parts_bytes(XXL, tokens)["activations"]
    return devices(states_bytes(), left_bytes, "bytes") if left_bytes > 0 else None


def sizes(models: Mapping[str, Model] = MODELS) -> pd.DataFrame:
    """Return a row per model: its parameters and the numbers that `Model` is given."""
    rows = [{"model": name, "parameters": model.parameters} | asdict(model) for name, model in models.items()]
    return of_source(pd.DataFrame(rows), _COUNTED)


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
    for label, spec in datasheets().items():
        room_bytes = bytes_of(spec.memory_gb, "GB")
        for model_name, model in models.items():
            for strategy in theory.STRATEGIES:
                fewest = theory.fewest_gpus(model, strategy, room_bytes, tokens, precision, recompute)
                rows.append((strategy, model_name, label, fewest, "ok" if fewest else "does not fit"))
    table = pd.DataFrame(rows, columns=["strategy", "model", "gpu", "fewest", "status"]).astype({"fewest": float})
    return of_source(table, _COUNTED, precision=precision, tokens=tokens, models=dict(models))


_BOOK = "theory after How to Scale Your Model (2025), part 5; nothing measured"
_KNOBS = {
    "as above, 4 × 2": {},
    "links twice as fast": {"bytes_per_s": 2 * NODE.bytes_per_s},
    "weights travel in 8 bits": {"weight_bytes": 1},
    "all travels in 8 bits": {"weight_bytes": 1, "activation_bytes": 1},
    "8 × 1 GPUs": {"fsdp": 8, "tensor": 1},
    "2 × 4 GPUs": {"fsdp": 2, "tensor": 4},
    "compute twice as fast": {"flop_per_s": 2 * NODE.flop_per_s},
}
_SPLIT = ("H200", "L40S")  # with NVLink, and without
_BESIDE = 8  # GPUs in a node


def over_tokens(mesh: Mesh = NODE) -> pd.DataFrame:
    """Return a row per batch (tokens in all): ms to compute one block's forward, gather weights, exchange activations.

    Fact: `bound`, the batch from which it is compute-bound.
    """
    rows = [(tokens, *(1e3 * seconds for seconds in times(mesh, XXL, tokens))) for tokens in np.geomspace(1e3, 1e6, 61)]
    table = pd.DataFrame(rows, columns=["tokens", "math_ms", "fsdp_ms", "tensor_ms"])
    return of_source(table, _BOOK, bound=least_tokens(mesh, XXL))


def bound(mesh: Mesh = NODE) -> pd.DataFrame:
    """Return one row, the least compute-bound batch: tokens in all and per device, and ms of the block's three parts.

    All are infinite where no batch is compute-bound.
    """
    tokens = least_tokens(mesh, XXL)
    parts = [1e3 * seconds for seconds in times(mesh, XXL, tokens)]
    columns = ["tokens", "tokens_per_device", "math_ms", "fsdp_ms", "tensor_ms"]
    return of_source(pd.DataFrame([(tokens, tokens / mesh.devices, *parts)], columns=columns), _BOOK)


def knobs() -> pd.DataFrame:
    """Return a row per knob turned alone: the least tokens in all and per GPU, and over those of the first row."""
    tokens = {name: least_tokens(replace(NODE, **turned), XXL) for name, turned in _KNOBS.items()}
    table = pd.DataFrame(tokens.items(), columns=["knob", "tokens"])
    table["tokens_per_device"] = table["tokens"] / NODE.devices
    table["times"] = table["tokens"] / table["tokens"].iloc[0]
    return of_source(table, _BOOK)


def splits(gpus: Sequence[str] = _SPLIT) -> pd.DataFrame:
    """Return a row per GPU and split of a node of 8: the least tokens in all, NaN where no batch is compute-bound."""
    rows = []
    for label in gpus:
        spec = datasheets()[label]
        tflops, gb_per_s = spec.tflops("bf16") or math.nan, limits.ring_bus_limit_gb_per_s(spec) or math.nan
        for tensor in (2**power for power in range(_BESIDE.bit_length())):
            mesh = replace(
                NODE, fsdp=_BESIDE // tensor, tensor=tensor, flop_per_s=1e12 * tflops, bytes_per_s=1e9 * gb_per_s
            )
            rows.append((label, tensor, mesh.fsdp, least_tokens(mesh, XXL)))
    table = pd.DataFrame(rows, columns=["gpu", "tensor", "fsdp", "tokens"]).replace(math.inf, math.nan)
    return of_source(table, _BOOK)


def machines(*nodes: Any) -> pd.DataFrame:
    """Return a row per GPU with a datasheet: tokens a GPU from which FSDP over 8 of them is compute-bound.

    Per token 2 FLOP a parameter, per parameter 2 bytes, of which a ring sends (n − 1)/n through a GPU's links in one
    direction: (n − 1)/n · C/W tokens. `link` is what W is of: NVLink, or PCIe. `here`: one of these nodes has it.
    """
    there = {limits.spec(gpu.name) for node in nodes for gpu in node.gpus}
    rows = []
    for label, spec in datasheets().items():
        rate, link = spec.tflops("bf16"), limits.ring_bus_limit_gb_per_s(spec) or math.nan
        share = (_BESIDE - 1) / _BESIDE
        rows.append(
            (label, rate, link, "NVLink" if spec.nvlink_links else "PCIe", share * rate * 1e3 / link, spec in there)
        )
    table = pd.DataFrame(rows, columns=["device", "tflops", "gb_per_s", "link", "tokens", "here"])
    table = table.sort_values("tokens", ignore_index=True)
    return of_source(table, "theory: datasheets' dense 16-bit rates, links' rates by driver or datasheet")


_SHARDED = ("fsdp_full", "fsdp_grad")
_PEAK, _WIDTH = {"bfloat16": "bf16", "float32": "fp32"}, {"bfloat16": 2, "float32": 4}
_COLUMNS = [
    "strategy",
    "tokens",
    "least_math_ms",
    "least_sent_ms",
    "bound_tokens",
    "alone_ms",
    "line_ms",
    "added",
    "efficiency",
    "spread",
]


def measured(strategies_run: Run, links_run: Run) -> pd.DataFrame:
    """Return a row per sharded setting of lab 05 on all its GPUs: a micro-batch by datasheet, by parts and as a whole.

    `tokens` are a GPU's. By datasheet, of a forward: least_math_ms, least_sent_ms, and bound_tokens, where these two
    are equal; a GPU that computes below its datasheet needs fewer. By parts measured alone: alone_ms, a single GPU's
    whole micro-batch, line_ms, what lines fitted to collectives give for all its calls, and `added`, the share of a
    single GPU's speed that is left if one comes after the other. `efficiency` is the share measured, with its spread.
    A machine without a datasheet has no bound (NaN).
    """
    plan = strategies_run.plan
    table = strategies(strategies_run)
    alone = table[table["strategy"] == "single"].set_index("load")
    rate, link = _peak_rates(strategies_run)
    model = plan.model(int(strategies_run.rows["vocabulary"].iloc[0]))
    forward_flop = flop_per_token(model.parameters, plan.layers, plan.hidden, plan.sequence) / 3
    width = _WIDTH[plan.precision]
    gathers = traffic(model, "fsdp_grad", plan.gpus, element_bytes=width, synced=0)  # each group once, as a forward
    forward_s = limits.least_seconds_to_move(through_a_link(gathers, plan.gpus), link)
    lines = fits(links_run)
    lines = lines[lines["ranks"] == plan.gpus].set_index("collective")
    rows = []
    for row in table[(table["ranks"] == plan.gpus) & table["strategy"].isin(_SHARDED)].itertuples():
        tokens, times = row.micro_batch * plan.sequence, row.batch // (row.micro_batch * row.ranks)
        sent = traffic(model, row.strategy, row.ranks, element_bytes=width, micro_batches=times)
        least_s = limits.least_seconds_to_compute(tokens * forward_flop, rate)
        single = alone.loc[row.load]
        alone_ms = single["step_ms"] * row.micro_batch / single["batch"]
        line_ms = 1e3 * sum(_seconds(call, lines, row.ranks) for call in sent) / times
        rows.append(
            (
                row.strategy,
                tokens,
                1e3 * least_s,
                1e3 * forward_s,
                tokens * forward_s / least_s,
                alone_ms,
                line_ms,
                alone_ms / (alone_ms + line_ms),
                row.efficiency,
                row.efficiency * row.spread_step_ms / row.step_ms,
            )
        )
    table = pd.DataFrame(rows, columns=_COLUMNS).sort_values(["strategy", "tokens"], ignore_index=True)
    return of_run(table, strategies_run)


def _peak_rates(run: Run) -> tuple[float | None, float | None]:
    """Return TFLOP/s and GB/s of the run's GPU; None where no datasheet is known."""
    spec = run.datasheet
    return (spec.tflops(_PEAK[run.plan.precision]), limits.ring_bus_limit_gb_per_s(spec)) if spec else (None, None)


def _seconds(sent: Sent, lines: pd.DataFrame, ranks: int) -> float:
    """Return what the calls take: an α each, and all their bytes over β."""
    line = lines.loc[sent.collective]
    link = Link(line["alpha_us"] / 1e6, line["beta_gb_per_s"])
    return (sent.calls - 1) * link.alpha_s + link.seconds(through_a_link([sent], ranks))


def derivation(published: pd.DataFrame) -> pd.DataFrame:
    """Return the derivation of the compute-bound batch as a row per step: our formula and figure, then the report's.

    D, F, X, Y, C, W, M_X and M_Y are as in the notebook. Times are of one block's forward, in µs or in ns per token.
    `same` says whether both agree within 1 %. The last rows are the batch (ours in all and per device; the report's
    exact, and with its rounded time of computing) and what is printed.
    """
    mesh, printed = COURSE_MESH, published.set_index("quantity")["value"]
    per_token_times = times(mesh, XXL, 1)
    computing_s = 2 * XXL.d_model * XXL.d_ff / mesh.flop_per_s  # the report's, per token
    least = least_tokens(mesh, XXL)
    exact, rounded = (
        per_token_times.fsdp_s / (per_token - per_token_times.tensor_s)
        for per_token in (computing_s, printed["seconds of computing per token as rounded"])
    )
    rows = [
        (
            "gather weights, µs",
            "4DF / (Y·W·M_X)",
            1e6 * per_token_times.fsdp_s,
            "4D/W · F/(2Y)",
            1e6 * per_token_times.fsdp_s,
        ),
        (
            "exchange activations, ns per token",
            "4D / (X·W·M_Y)",
            1e9 * per_token_times.tensor_s,
            "4D/W / X",
            1e9 * per_token_times.tensor_s,
        ),
        ("compute, ns per token", "4DF / (X·Y·C)", 1e9 * per_token_times.math_s, "2DF / C", 1e9 * computing_s),
        (
            "batch, tokens in all",
            "weights / (compute − activations)",
            least,
            "weights / (compute − activations)",
            exact,
        ),
        ("batch with rounded compute", "–", math.nan, "compute = 3.8 µs", rounded),
        (
            "batch, tokens per device",
            "batch in all / (X·Y)",
            least / mesh.devices,
            "no formula: as printed",
            printed["compute-bound batch"],
        ),
    ]
    table = pd.DataFrame(rows, columns=["step", "our formula", "ours", "report's formula", "report"])
    table["same"] = ((table["report"] / table["ours"] - 1).abs() < 0.01).where(table["ours"].notna(), "–")
    return of_source(table, fact(published, "source"))
