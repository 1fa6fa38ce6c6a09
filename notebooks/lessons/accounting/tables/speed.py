"""Times → tables: the least compute-bound batch by mesh, knob and machine, and recorded sharded training beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import of_run, of_source
from labkit.tables.lines import fits
from labkit.tables.rates import strategies
from labkit.theory.gpt import flop_per_token
from labkit.theory.lines import Link
from labkit.theory.traffic import Sent, through_a_link, traffic
from lessons.accounting.tables.memory import datasheets
from lessons.accounting.theory import COURSE_MESH, XXL, Mesh, Model, held, least_tokens, number_in, times

if TYPE_CHECKING:
    from labkit.engine.run import Run

_BOOK = "theory: How to Scale Your Model (2025), part 5; nothing measured"
_OVERLAPS = {"at once": True, "in turn": False}
_KNOBS = {
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
_BESIDE = 8  # GPUs in a node


def over_tokens(mesh: Mesh = COURSE_MESH, model: Model = XXL, tokens: Sequence[float] | None = None) -> pd.DataFrame:
    """Return a row per batch (tokens in all): ms to compute one block's forward, gather weights, exchange activations.

    Facts: `bounds`, the batch from which it is compute-bound by way (at once, in turn).
    """
    batches: Any = np.geomspace(1e3, 1e6, 61) if tokens is None else tokens
    rows = [(batch, *(1e3 * seconds for seconds in times(mesh, model, batch))) for batch in batches]
    table = pd.DataFrame(rows, columns=["tokens", "math_ms", "fsdp_ms", "tensor_ms"])
    return of_source(
        table, _BOOK, bounds={name: least_tokens(mesh, model, at_once) for name, at_once in _OVERLAPS.items()}
    )


def bounds(mesh: Mesh = COURSE_MESH, model: Model = XXL) -> pd.DataFrame:
    """Return a row per way to communicate: the least tokens in all and per device, and GB per device then."""
    rows = []
    for name, at_once in _OVERLAPS.items():
        tokens = least_tokens(mesh, model, at_once)
        gb = math.inf
        if tokens < math.inf:
            gb = float(number_in("GB", sum(held(model, ceil(tokens / mesh.fsdp), mesh.fsdp, mesh.tensor).values())))
        rows.append((name, tokens, tokens / mesh.devices, gb))
    table = pd.DataFrame(rows, columns=["weights and activations", "tokens", "tokens_per_device", "gb"])
    return of_source(table, _BOOK)


def knobs(mesh: Mesh = COURSE_MESH, model: Model = XXL) -> pd.DataFrame:
    """Return a row per knob turned alone: the least tokens in all and per device (in turn), and over those as asked."""
    rows = []
    for name, turned in _KNOBS.items():
        other = replace(mesh, **turned)
        at_once, in_turn = (least_tokens(other, model, way) for way in _OVERLAPS.values())
        rows.append((name, other.devices, at_once, in_turn, in_turn / other.devices))
    table = pd.DataFrame(rows, columns=["knob", "devices", "at_once", "in_turn", "in_turn_per_device"])
    table["times"] = table["in_turn"] / table["in_turn"].iloc[0]
    return of_source(table, _BOOK)


def splits(devices: int = 64, mesh: Mesh = COURSE_MESH, model: Model = XXL) -> pd.DataFrame:
    """Return a row per power of 2 of tensor shards, the rest of the devices FSDP's: the least tokens, NaN for never."""
    rows = []
    for tensor in (2**power for power in range(devices.bit_length()) if devices % 2**power == 0):
        other = replace(mesh, fsdp=devices // tensor, tensor=tensor)
        rows.append((tensor, other.fsdp, *(least_tokens(other, model, way) for way in _OVERLAPS.values())))
    table = pd.DataFrame(rows, columns=["tensor", "fsdp", "at_once", "in_turn"]).replace(math.inf, float("nan"))
    return of_source(table, _BOOK, devices=devices)


def machines(*nodes: Any) -> pd.DataFrame:
    """Return a row per GPU with a datasheet: tokens a GPU from which FSDP over 8 of them is compute-bound.

    Per token 2 FLOP a parameter, per parameter 2 bytes, of which a ring sends (n − 1)/n through a GPU's links in one
    direction: (n − 1)/n · C/W tokens. `link` is what W is of: NVLink, or PCIe. `here`: one of these nodes has it.
    The TPU's W are both directions of one axis, as in the book.
    """
    there = {limits.spec(gpu.name) for node in nodes for gpu in node.gpus}
    rows = []
    for label, known in datasheets().items():
        rate, link = known.tflops("bf16") or known.tflops("fp16"), limits.ring_bus_limit_gb_per_s(known) or math.nan
        share = (_BESIDE - 1) / _BESIDE
        rows.append(
            (label, rate, link, "NVLink" if known.nvlink_links else "PCIe", share * rate * 1e3 / link, known in there)
        )
    tpu = COURSE_MESH
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
    return of_source(table, "theory: datasheets' dense 16-bit rates and links")


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

    `tokens` are a GPU's. By datasheet: least_math_ms, least_sent_ms, and bound_tokens, where these two are equal; a
    GPU that computes below its datasheet needs fewer. By parts measured alone: alone_ms, a single GPU's, line_ms, what
    lines fitted to collectives give for all calls, and `added`, the share of a single GPU's speed that is left if one
    comes after the other. `efficiency` is the share measured, with its spread. A machine without a datasheet has no
    bound (NaN).
    """
    plan: Any = strategies_run.plan
    table = strategies(strategies_run)
    alone = table[table["strategy"] == "single"].set_index("load")
    rate, link = _datasheet(strategies_run)
    model = plan.model(int(strategies_run.rows["vocabulary"].iloc[0]))
    flop = flop_per_token(model.parameters, plan.layers, plan.hidden, plan.sequence)
    lines = fits(links_run)
    lines = lines[lines["ranks"] == plan.gpus].set_index("collective")
    rows = []
    for row in table[(table["ranks"] == plan.gpus) & table["strategy"].isin(_SHARDED)].itertuples():
        tokens, times = row.micro_batch * plan.sequence, row.batch // (row.micro_batch * row.ranks)
        sent = traffic(model, row.strategy, row.ranks, element_bytes=_WIDTH[plan.precision], micro_batches=times)
        least_s = limits.least_seconds_to_compute(tokens * flop, rate)
        sent_s = limits.least_seconds_to_move(through_a_link(sent, row.ranks), link) / times
        single = alone.loc[row.load]
        alone_ms = single["step_ms"] * row.micro_batch / single["batch"]
        line_ms = 1e3 * sum(_seconds(one, lines, row.ranks) for one in sent) / times
        rows.append(
            (
                row.strategy,
                tokens,
                1e3 * least_s,
                1e3 * sent_s,
                tokens * sent_s / least_s,
                alone_ms,
                line_ms,
                alone_ms / (alone_ms + line_ms),
                row.efficiency,
                row.efficiency * row.spread_step_ms / row.step_ms,
            )
        )
    table = pd.DataFrame(rows, columns=_COLUMNS).sort_values(["strategy", "tokens"], ignore_index=True)
    return of_run(table, strategies_run)


def _datasheet(run: Run) -> tuple[float | None, float | None]:
    """Return TFLOP/s and GB/s of the run's GPU; None where no datasheet is known."""
    plan: Any = run.plan
    known = limits.spec(run.node.gpus[0].name) if plan.device == "cuda" else None
    return (known.tflops(_PEAK[plan.precision]), limits.ring_bus_limit_gb_per_s(known)) if known else (None, None)


def _seconds(sent: Sent, lines: pd.DataFrame, ranks: int) -> float:
    """Return what the calls take: an α each, and all their bytes over β."""
    line = lines.loc[sent.collective]
    link = Link(line["alpha_us"] / 1e6, line["beta_gb_per_s"])
    return (sent.calls - 1) * link.alpha_s + link.seconds(through_a_link([sent], ranks))
