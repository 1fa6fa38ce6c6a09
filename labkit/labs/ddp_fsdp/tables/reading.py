"""The published DDP and FSDP figures re-computed: what is resolved, what a batch was, what memory and bytes allow."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from labkit.node import limits
from labkit.provenance import of_source, sources
from labkit.theory.shapes import bert
from labkit.theory.traffic import through_a_link
from labkit.theory.traffic import traffic as sent_in_a_step

_GPU: Any = limits.spec("NVIDIA H100 80GB HBM3")
_MODEL = bert(hidden=768, layers=12, vocabulary=30522, positions=512)
_STATES = 16  # bytes a parameter: weight, gradient and AdamW's two moments, in float32
_SEEDS = 3
_REFERENCE = "eml3-4xh100"  # the report whose batch is taken as printed; `physics` tells what else it could be
_RESOLVED = 2.0  # standard errors; Student's t with two times three seeds asks 2.8
_CLOSE = 0.1
# One report's "MB" are 2^20 bytes: its peak of 10 438.31 is the 10 945 447 595 bytes of the other.
_BYTES = {"MB": 2**20, "bytes": 1}


def printed_differences(published: pd.DataFrame) -> pd.DataFrame:
    """Return per report and batch: how FSDP's rate differs from DDP's, and whether the printed spreads resolve it.

    `difference` is a share of DDP's rate, `standard_error` that of the difference, from the standard deviations over
    three seeds; `resolved` where the difference is more than two of them. Seeds say nothing of other machines or days.
    """
    pairs = _pairs(published)
    rates = [f"samples_per_second_{name}" for name in ("ddp", "fsdp")]
    stds = [f"samples_per_second_std_{name}" for name in ("ddp", "fsdp")]
    ddp, fsdp = (pairs[name] for name in rates)
    table = pairs[["report", "global_batch", *rates]].assign(
        difference=fsdp / ddp - 1,
        standard_error=(pairs[stds] ** 2).sum(axis=1) ** 0.5 / math.sqrt(_SEEDS) / ddp,
    )
    table["standard_errors"] = table["difference"].abs() / table["standard_error"]
    table["resolved"] = table["standard_errors"] > _RESOLVED
    return _sourced(table, published)


def samples_per_gpu(published: pd.DataFrame) -> pd.DataFrame:
    """Return per report, strategy and batch: samples per GPU, printed, by step time and by memory; which batch `fits`.

    `printed_per_gpu` shares the batch among the GPUs. `implied_per_gpu` is what the step's seconds say where the
    reference's step holds its printed share. `together_mb_per_sample` and `each_mb_per_sample` (10^6 bytes) are
    activations, if the batch is shared and if every GPU takes all of it: the slope of the peak over a report's batches,
    or for a single batch the peak without states of 16 bytes a parameter, sharded where the strategy shards.
    What a report's line leaves at no sample is `states_bytes_per_parameter`. `fits`: "together", "each" or "neither",
    as step time and memory both come within 10 % of the reference's, which the fact "reference" names.
    `each_samples_per_second` is what the GPUs processed if every one took the whole batch.
    """
    rows = _rows(published)
    rows["printed_per_gpu"] = rows["global_batch"] / rows["gpus"]
    rows = rows.merge(_reference(rows), on="strategy")
    rows["implied_per_gpu"] = rows["reference_per_gpu"] * rows["step_seconds"] / rows["reference_seconds"]
    rows["each_mb_per_sample"] = _bytes_per_sample(rows) / 1e6
    rows["together_mb_per_sample"] = rows["each_mb_per_sample"] * rows["gpus"]
    activations = rows["each_mb_per_sample"] * 1e6 * rows["global_batch"]
    rows["states_bytes_per_parameter"] = (rows["peak_bytes"] - activations) / _MODEL.parameters
    own = rows[rows["report"] == _REFERENCE].set_index("strategy")["together_mb_per_sample"]
    rows["reference_mb_per_sample"] = rows["strategy"].map(own)
    rows["each_samples_per_second"] = rows["gpus"] * rows["global_batch"] / rows["step_seconds"]
    rows["fits"] = [_reading(row) for row in rows.to_dict("records")]
    names = ["report", "strategy", "global_batch", "gpus", "step_seconds", "samples_per_second", "printed_per_gpu"]
    names += ["implied_per_gpu", "together_mb_per_sample", "each_mb_per_sample", "reference_mb_per_sample"]
    names += ["states_bytes_per_parameter", "each_samples_per_second", "fits"]
    return _sourced(rows[names], published, reference=_REFERENCE)


def savings(published: pd.DataFrame) -> pd.DataFrame:
    """Return per report and batch: what FSDP's fullest rank saves beside DDP's, in MiB, and the most that sharding can.

    `saving` is a share of DDP's peak. At most (1 − 1/N) of 16 bytes a parameter can be sharded away, whatever the
    batch: activations are not sharded. `standard_error_mib` is from the printed spreads of three seeds.
    """
    pairs = _pairs(published)
    ddp, fsdp = (pairs[f"peak_bytes_{name}"] / 2**20 for name in ("ddp", "fsdp"))
    errors = pairs[["peak_std_bytes_ddp", "peak_std_bytes_fsdp"]] / 2**20 / math.sqrt(_SEEDS)
    table = pairs[["report", "global_batch"]].assign(
        ddp_mib=ddp,
        fsdp_mib=fsdp,
        saving_mib=ddp - fsdp,
        standard_error_mib=(errors**2).sum(axis=1) ** 0.5,
        saving=1 - fsdp / ddp,
        most_mib=(1 - 1 / pairs["gpus_ddp"]) * _STATES * _MODEL.parameters / 2**20,
    )
    return _sourced(table.assign(share_of_most=table["saving_mib"] / table["most_mib"]), published)


def traffic(published: pd.DataFrame) -> pd.DataFrame:
    """Return what each GPU must send in a step (10^6 bytes), the least ms it takes NVLink, and its share of the step.

    One report's text has it that "DDP has no inter-GPU communication". DDP averages gradients of 4 bytes a parameter:
    in a ring each GPU sends 2(N − 1)/N of them. FSDP gathers parameters in forward and in backward and scatters
    gradients. The rate is the datasheet's, in one direction.
    """
    rows = _rows(published)
    sent = [
        through_a_link(sent_in_a_step(_MODEL, strategy, ranks), ranks)
        for strategy, ranks in zip(rows["strategy"], rows["gpus"], strict=True)
    ]
    table = rows[["report", "strategy", "global_batch", "gpus", "step_seconds"]].assign(sent_mb=pd.Series(sent) / 1e6)
    least = limits.least_seconds_to_move(table["sent_mb"] * 1e6, _GPU.nvlink_gb_per_s)
    return _sourced(table.assign(least_ms=1e3 * least, share_of_step=least / table["step_seconds"]), published)


def physics(published: pd.DataFrame) -> pd.DataFrame:
    """Return per report and batch: the fastest step's TFLOP/s per GPU in both readings, beside float32's limit.

    `reading`: "together" where the GPUs share the batch, as printed; "each" where every GPU takes all of it.
    """
    fastest = _rows(published).sort_values("step_seconds").drop_duplicates(["report", "global_batch"]).sort_index()
    readings = [fastest.assign(reading="together", samples_per_gpu=fastest["global_batch"] / fastest["gpus"])]
    readings.append(fastest.assign(reading="each", samples_per_gpu=fastest["global_batch"]))
    table = pd.concat(readings)[["report", "global_batch", "reading", "samples_per_gpu", "step_seconds"]]
    table["tflops"] = table["samples_per_gpu"] * flop_per_sample() / table["step_seconds"] / 1e12
    checked = limits.against_limit(table, "tflops", _GPU.tflops("fp32"))
    return _sourced(checked.sort_values(["report", "global_batch"], kind="stable"), published)


def flop_per_sample(layers: int = 12, hidden: int = 768, sequence: int = 512) -> int:
    """Return the floating-point operations of forward and backward for one sample: matrix products and attention.

    A layer multiplies with 12 hidden² weights and makes two products of attention; backward does all twice.
    """
    return 3 * layers * (24 * hidden**2 * sequence + 4 * hidden * sequence**2)


def _rows(published: pd.DataFrame) -> pd.DataFrame:
    """Return one row per report, strategy and batch; its peak is the fullest rank's."""
    factor = published["unit"].map(_BYTES)
    rows = published.assign(
        peak_bytes=published["peak"] * factor, peak_std_bytes=published["peak_std"] * factor, gpus=published["rank"]
    )
    first = ["samples_per_second", "samples_per_second_std", "step_seconds"]
    how = {"gpus": "nunique", "peak_bytes": "max", "peak_std_bytes": "max"} | dict.fromkeys(first, "first")
    return rows.groupby(["report", "strategy", "global_batch"], sort=False, as_index=False).agg(how)


def _pairs(published: pd.DataFrame) -> pd.DataFrame:
    rows = _rows(published)
    ddp, fsdp = (rows[rows["strategy"] == name] for name in ("ddp", "fsdp_full"))
    return ddp.merge(fsdp, on=["report", "global_batch"], suffixes=("_ddp", "_fsdp"))


def _reference(rows: pd.DataFrame) -> pd.DataFrame:
    own = rows[rows["report"] == _REFERENCE]
    renamed = {"printed_per_gpu": "reference_per_gpu", "step_seconds": "reference_seconds"}
    return own.rename(columns=renamed)[["strategy", *renamed.values()]]


def _bytes_per_sample(rows: pd.DataFrame) -> pd.Series:
    """Return the bytes that a sample adds to the peak, if every GPU takes the whole batch."""
    runs = rows.groupby(["report", "strategy"])[["global_batch", "peak_bytes"]]
    span = runs.transform("max") - runs.transform("min")
    shards = rows["gpus"].where(rows["strategy"] != "ddp", 1)
    single = (rows["peak_bytes"] - _STATES * _MODEL.parameters / shards) / rows["global_batch"]
    return (span["peak_bytes"] / span["global_batch"].where(span["global_batch"] > 0)).fillna(single)


def _reading(row: dict) -> str:
    for reading, samples in (("together", row["printed_per_gpu"]), ("each", row["global_batch"])):
        time = row["implied_per_gpu"] / samples
        memory = row[f"{reading}_mb_per_sample"] / row["reference_mb_per_sample"]
        if max(abs(time - 1), abs(memory - 1)) <= _CLOSE:
            return reading
    return "neither"


def _sourced(table: pd.DataFrame, published: pd.DataFrame, **facts: Any) -> pd.DataFrame:
    return of_source(table.reset_index(drop=True), sources(published), **facts)
