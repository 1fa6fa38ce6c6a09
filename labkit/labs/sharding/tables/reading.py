"""A published study of GPT-2 Large on two GPUs, re-computed: which model a figure is of, and what its tables allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from labkit.node import limits
from labkit.provenance import of_source, sources
from labkit.theory.gpt import SIZES, gpt
from labkit.theory.gpt import flop_per_token as flop_of
from labkit.theory.kernels import collective
from labkit.theory.traffic import through_a_link, traffic

_GPU: Any = limits.spec("NVIDIA H100 80GB HBM3")
_GPUS = 2
_MODELS = {name: gpt(layers, hidden) for name, (layers, hidden, _) in SIZES.items() if name.startswith("GPT-2")}
_CLAIMED, _SMALLEST = "GPT-2 Large", "GPT-2 small"
_STEPS, _BATCH, _SEQUENCE = 20, 32, 1024  # of the timed training, as the report's text has them
_CALLED_WORST = "ddp"  # by the report's text
_MIB = 2**20
_HALF = 0.5  # GB: what a figure printed in whole GB may be off
_RESOLUTION = 0.01  # of times printed without a spread
_EXACT, _NEAR = 0.001, 0.05


def model_of(memory: pd.DataFrame) -> pd.DataFrame:
    """Return per GPT-2 model: its parameters and states in MB of 2^20 bytes, beside the printed ones.

    In float32, 4 bytes a parameter, and 16 with gradient and AdamW's two moments. `matches`: the printed parameters
    are the model's within 0.1 %. `peak_allows`: the states are no more than the printed peak.
    """
    printed = memory.set_index("item")["megabytes"]
    table = pd.DataFrame([{"model": name, "parameters": model.parameters} for name, model in _MODELS.items()])
    table["parameters_mb"] = 4 * table["parameters"] / _MIB
    table["printed_parameters_mb"] = printed["parameters"]
    table["off"] = printed["parameters"] / table["parameters_mb"] - 1
    table["matches"] = table["off"].abs() <= _EXACT
    table["states_mb"] = 16 * table["parameters"] / _MIB
    table["printed_peak_mb"] = printed["peak allocated"]
    table["peak_allows"] = table["states_mb"] <= table["printed_peak_mb"]
    return _sourced(table, memory)


def savings(strategies: pd.DataFrame) -> pd.DataFrame:
    """Return per strategy: the printed peak in GB, the saving over baseline, and the most that its sharding allows.

    Of 16 bytes a parameter "fsdp_full" shards all and "fsdp_grad" 12 (the weights stay whole); activations are taken
    as sharded, too, which is generous. `verdict`: "impossible" where even `least_saving`, with both figures rounded
    in its favour to whole GB, exceeds `limit_saving`.
    """
    gb = strategies.set_index("strategy")["peak_memory_gb"]
    kept = pd.Series({"baseline": 1.0, "ddp": 1.0, "fsdp_full": 1 / _GPUS, "fsdp_grad": _grad_share(_GPUS)})
    table = pd.DataFrame({"printed_gb": gb, "saving": gb["baseline"] / gb, "limit_saving": 1 / kept[gb.index]})
    table["least_saving"] = (gb["baseline"] - _HALF) / (gb + _HALF)
    table["verdict"] = np.where(table["least_saving"] > table["limit_saving"], "impossible", "possible")
    return _sourced(table.rename_axis("strategy").reset_index(), strategies)


def ranking(strategies: pd.DataFrame) -> pd.DataFrame:
    """Return the strategies on two GPUs, fastest first: seconds, how much over the fastest, whether that is resolved.

    No spread is printed, so less than 1 % is not resolved. `called_worst` marks what the report's text calls so.
    """
    table = strategies[strategies["strategy"] != "baseline"].sort_values("train_seconds_20_steps")
    table = table[["strategy", "train_seconds_20_steps"]].rename(columns={"train_seconds_20_steps": "seconds"})
    table["over_fastest"] = table["seconds"] / table["seconds"].iloc[0] - 1
    table["resolved"] = table["over_fastest"] >= _RESOLUTION
    table["called_worst"] = table["strategy"] == _CALLED_WORST
    return _sourced(table, strategies)


def tokens(strategies: pd.DataFrame) -> pd.DataFrame:
    """Return per strategy: printed tokens per second beside those of its seconds, and the TFLOP/s of a GPU for either.

    20 steps of 32 sequences of 1024 are what the text times; `sequences_per_step` is what the printed rate needs.
    `tflops_by_rate` and `tflops_by_seconds` are GPT-2 Large's; limit and verdict hold the first against bfloat16, in
    which the report multiplied. `small_tflops_by_rate` is what GPT-2 small would need.
    """
    seconds = strategies["train_seconds_20_steps"]
    table = strategies[["strategy", "tokens_per_second"]].assign(step_seconds=seconds / _STEPS)
    table["computed_tokens_per_second"] = _STEPS * _BATCH * _SEQUENCE / seconds
    table["factor"] = table["tokens_per_second"] / table["computed_tokens_per_second"]
    table["sequences_per_step"] = table["factor"] * _BATCH
    gpus = np.where(table["strategy"] == "baseline", 1, _GPUS)
    large, small = (flop_per_token(model) / gpus / 1e12 for model in (_CLAIMED, _SMALLEST))
    table["tflops_by_seconds"] = table["computed_tokens_per_second"] * large
    table["tflops_by_rate"] = table["tokens_per_second"] * large
    table["small_tflops_by_rate"] = table["tokens_per_second"] * small
    return _sourced(limits.against_limit(table, "tflops_by_rate", _GPU.tflops("bf16")), strategies)


def breakdown(printed: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
    """Return per strategy: its profiled window in ms and the exposed communication that the report's figures give.

    `sum_ms` is idle + compute + non-compute. Exposed: as printed; `discounted_ms`, non-compute × (1 − overlap), though
    non-compute is what runs outside compute already; `non_compute_over_baseline_ms`; `window_over_baseline_ms`, which
    is all that communication cost; `nccl_exposed_ms`, the listed NCCL kernels × (1 − overlap).
    """
    table = printed[["strategy", "kernel_ms", "compute_ms"]].copy()
    table["sum_ms"] = printed["idle_ms"] + printed["compute_ms"] + printed["non_compute_ms"]
    exposed = 1 - printed["overlap_percent"] / 100
    base = printed[printed["strategy"] == "baseline"].iloc[0]
    table["exposed_ms"] = printed["exposed_ms"]
    table["discounted_ms"] = printed["non_compute_ms"] * exposed
    table["non_compute_over_baseline_ms"] = printed["non_compute_ms"] - base["non_compute_ms"]
    table["window_over_baseline_ms"] = printed["kernel_ms"] - base["kernel_ms"]
    nccl = _nccl(operators).groupby("strategy")["microseconds"].sum() / 1e3
    table["nccl_ms"] = table["strategy"].map(nccl)
    table["nccl_exposed_ms"] = table["nccl_ms"] * exposed
    return _sourced(table, printed)


def calls(operators: pd.DataFrame) -> pd.DataFrame:
    """Return per strategy: the calls and ms of its collective beside those of one forward and backward of GPT-2 Large.

    `expected_calls`: DDP's buckets of 25 MiB; a gather a block and one of the root, and with "fsdp_full" the blocks
    once more in backward. `models` are those that call just as often. `total_mb` and `mb_per_call` are 10^6 bytes of
    float32; `gb_per_s` is what a GPU sends in a ring, held against NVLink's rate. `reduce_scatters` counts the calls
    of that kind that are listed beside it.
    """
    nccl = _nccl(operators)
    scatters = nccl[nccl["collective"] == "reduce_scatter"].groupby("strategy")["calls"].sum()
    nccl = nccl[nccl["collective"].isin(["all_reduce", "all_gather"])]
    table = nccl[["strategy", "collective", "calls"]].assign(ms=nccl["microseconds"] / 1e3)
    expected = [traffic(_MODELS[_CLAIMED], strategy, _GPUS)[0] for strategy in table["strategy"]]
    table["expected_calls"] = [sent.calls for sent in expected]
    table["models"] = [
        ", ".join(name for name, model in _MODELS.items() if traffic(model, strategy, _GPUS)[0].calls == count)
        for strategy, count in zip(table["strategy"], table["calls"], strict=True)
    ]
    table["total_mb"] = [sent.bytes / 1e6 for sent in expected]
    table["mb_per_call"] = table["total_mb"] / table["calls"]
    table["gb_per_s"] = [through_a_link([sent], _GPUS) / 1e6 for sent in expected] / table["ms"]
    table["reduce_scatters"] = table["strategy"].map(scatters).fillna(0)
    return _sourced(limits.against_limit(table, "gb_per_s", limits.ring_bus_limit_gb_per_s(_GPU)), operators)


def printed_projection(printed: pd.DataFrame) -> pd.DataFrame:
    """Return per number of GPUs: projected memory beside what sharding 12 of 16 bytes gives, and what speedups lose.

    `follows`: within 5 % of that rule, in GB. Shares of 1: `ddp_lost` and `fsdp_lost` of N times the speed,
    `communication`, and `unexplained`, which FSDP loses beyond it.
    """
    table = printed[["gpus"]].assign(printed_gb=printed["fsdp_grad_memory_gb"])
    table["rule_gb"] = printed["fsdp_grad_memory_gb"].iloc[0] * _grad_share(printed["gpus"])
    table["over_rule"] = table["printed_gb"] / table["rule_gb"] - 1
    table["follows"] = table["over_rule"].abs() <= _NEAR
    for name in ("ddp", "fsdp"):
        table[f"{name}_lost"] = 1 - printed[f"{name}_speedup"] / printed["gpus"]
    table["communication"] = printed["communication_percent"] / 100
    return _sourced(table.assign(unexplained=table["fsdp_lost"] - table["communication"]), printed)


def printed_batches(batch_size: pd.DataFrame) -> pd.DataFrame:
    """Return per batch: tokens per second, memory in MB, what its rise tells, and the TFLOP/s that a model needs.

    `floor`: the same least memory as of another batch, so not the batch's need. Above it a straight line gives
    `mb_per_sequence` and, at no sequence, `states_mb`. Limit and verdict hold GPT-2 Large's TFLOP/s against bfloat16's.
    Out of memory is NaN.
    """
    table = batch_size[["batch"]].copy()
    table["tokens_per_second"] = pd.to_numeric(batch_size["tokens_per_second"], errors="coerce")
    table["memory_mb"] = memory = pd.to_numeric(batch_size["memory_mb"], errors="coerce")
    table["floor"] = (memory == memory.min()) & memory.duplicated(keep=False)
    fitted = table[memory.notna() & ~table["floor"]]
    line = np.polyfit(fitted["batch"], fitted["memory_mb"], 1) if len(fitted) > 1 else (np.nan, np.nan)
    table["mb_per_sequence"], table["states_mb"] = line
    for name, model in (("large", _CLAIMED), ("small", _SMALLEST)):
        table[f"{name}_tflops"] = table["tokens_per_second"] * flop_per_token(model) / 1e12
    return _sourced(limits.against_limit(table, "large_tflops", _GPU.tflops("bf16")), batch_size)


def flop_per_token(model: str) -> float:
    """Return forward and backward of a GPT-2 for one token of a sequence of 1024."""
    layers, hidden, _ = SIZES[model]
    return flop_of(_MODELS[model].parameters, layers, hidden, _SEQUENCE)


def _grad_share(gpus):
    return (4 + 12 / gpus) / 16


def _nccl(operators: pd.DataFrame) -> pd.DataFrame:
    rows = operators[operators["operation"].str.startswith("nccl")]
    return rows.assign(
        strategy=rows["compared"].str.split(" -> ").str[1],
        collective=rows["operation"].map(collective),
    )


def _sourced(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    return of_source(table.reset_index(drop=True), sources(published), claimed=_CLAIMED)
