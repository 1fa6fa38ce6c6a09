"""Claims of two course reports on BERT under DDP and FSDP, recomputed from their figures, formulas and our runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.engine.run import replay
from labkit.node import limits
from labkit.tables.claims import claim
from labkit.tables.published import published, report_names
from labkit.theory.shapes import bert
from labkit.theory.traffic import through_a_link, traffic
from lessons.ddp_fsdp.tables import holdings, per_sample, printed_differences, printed_per_sample, printed_runs

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"
_H100: Any = limits.spec("NVIDIA H100 80GB HBM3")
_MODEL = bert(hidden=768, layers=12, vocabulary=30522, positions=512)
_GPUS = 4
_STATE_BYTES = 16  # per parameter in float32: itself, its gradient and AdamW's two states
_CLOSE = 0.1  # two steps, or two memories, of the same batch differ by less
_RESOLVED = 2.0  # standard errors


def _run(report: str, batch: int, strategy: str = "ddp") -> pd.Series:
    """Return what a report prints of a strategy at a batch; the peak is that of its fullest GPU."""
    return printed_runs().set_index(["report", "global_batch", "strategy"]).loc[(report, batch, strategy)]


def _stated(report: str, statement: str) -> float:
    return float(published("ddp_fsdp_statements").set_index(["report", "statement"]).loc[(report, statement), "value"])


def _tflops(samples: float, seconds: float) -> float:
    """Return the TFLOP/s of a GPU that trains these samples in these seconds: products of weights and of attention."""
    flop = 3 * 12 * (24 * 768**2 * 512 + 4 * 768 * 512**2)
    return samples * flop / seconds / 1e12


def _same(printed: float, recomputed: float) -> bool:
    return abs(recomputed / printed - 1) <= _CLOSE


@claim(FOUR, "the GPUs share the batch: each has 16 of 64 samples", "samples per GPU")
def shared_batch():
    """If each GPU took all 64, it would do 120 TFLOP/s, and in float32 an H100 does at most 67. TF32 is faster, but
    memory excludes 64 as well: each sample would take 144 MB, a quarter of what it takes in the other report, whose
    GPUs have the same peak with 16 samples."""
    run = _run(FOUR, 64)
    most = _H100.tflops("fp32") / _tflops(1, run["step_seconds"])
    return 64 / _GPUS, 64 / _GPUS if most < 64 else None, True if most < 64 else None


def _share_by_time(batch: int) -> tuple[float, float, bool]:
    other, run = _run(FOUR, 64), _run(EIGHT, batch)
    samples = 64 / _GPUS * run["step_seconds"] / other["step_seconds"]
    return batch / _GPUS, samples, _same(batch / _GPUS, samples)


@claim(
    EIGHT, "the GPUs share a batch of 64: each has 16 samples (recomputed: from the time of a step)", "samples per GPU"
)
def share_of_64_by_time():
    """A step takes 3.7 times as long as the other report's with 16 samples per GPU. With a shared batch each GPU would
    reach only 8 TFLOP/s, but the other report's GPUs reach 30. So each GPU had all 64 samples."""
    return _share_by_time(64)


@claim(
    EIGHT, "the GPUs share a batch of 16: each has 4 samples (recomputed: from the time of a step)", "samples per GPU"
)
def share_of_16_by_time():
    """A step takes as long as the other report's with 16 samples per GPU. So each GPU had all 16 samples."""
    return _share_by_time(16)


@claim(EIGHT, "the GPUs share the batch (recomputed: the other report's memory)", "MB per sample", digits=4)
def share_by_memory():
    """From batch 16 to 64 the peak rises by 27.4 GB. If each GPU had the whole batch, that is 570 MB per sample. In the
    other report a sample takes 575 MB. So each GPU had the whole batch."""
    other, whole_batch = printed_per_sample().values()
    return _GPUS * whole_batch, other, _same(other, _GPUS * whole_batch)


def _rate(batch: int) -> tuple[float, float, bool]:
    run = _run(EIGHT, batch)
    processed = _GPUS * batch / run["step_seconds"]
    return run["samples_per_second"], processed, _same(run["samples_per_second"], processed)


@claim(EIGHT, "DDP processes 111 samples/s at batch 64 (recomputed: 4 GPUs with 64 samples each)", "samples/s")
def rate_at_64():
    """The report counts 64 samples per step. Each of its four GPUs processed 64, so the rate is four times the printed
    one. That is close to the other report's 415."""
    return _rate(64)


@claim(EIGHT, "DDP processes 103 samples/s at batch 16 (recomputed: 4 GPUs with 16 samples each)", "samples/s")
def rate_at_16():
    """The report counts 16 samples per step. Each of its four GPUs processed 16, so the rate is four times the printed
    one."""
    return _rate(16)


def _slower(report: str, batch: int) -> tuple[float, float, bool | None]:
    """Return FSDP's loss and two standard errors of it, both in % of DDP's rate, and whether the loss is larger."""
    row = printed_differences().set_index(["report", "global_batch"]).loc[(report, batch)]
    return round(-100 * row["difference"], 2), 100 * _RESOLVED * row["standard_error"], bool(row["resolved"]) or None


@claim(FOUR, "FSDP costs less than 0.1 % of DDP's speed (recomputed: from the report's own rates)", "%", digits=2)
def overhead():
    """The report's own table prints 415.17 samples/s for DDP and 414.29 for FSDP. FSDP's loss of 0.21 % is twice the
    stated limit."""
    loss = -100 * printed_differences().set_index("report").loc[FOUR, "difference"]
    least = _stated(FOUR, "overhead of FSDP is less than")
    return least, loss, loss < least


@claim(FOUR, "FSDP is slower than DDP at batch 64 (recomputed: two standard errors)", "%", digits=2)
def slower_at_64():
    """The difference is far beyond the spread of three seeds on one machine and day."""
    return _slower(FOUR, 64)


@claim(EIGHT, "FSDP is slower than DDP at batch 64 (recomputed: two standard errors)", "%", digits=2)
def slower_at_64_in_the_other():
    """FSDP's three seeds differ a lot: their standard deviation is 11 % of the mean. The difference is smaller than two
    standard errors, so it can be chance."""
    return _slower(EIGHT, 64)


@claim(EIGHT, "FSDP is slower than DDP at batch 16 (recomputed: two standard errors)", "%", digits=2)
def slower_at_16():
    """The difference is beyond the spread of three seeds on one machine and day."""
    return _slower(EIGHT, 16)


@claim(EIGHT, "DDP has no communication between GPUs (recomputed: a ring all-reduce)", "MB per GPU and step")
def sent_by_ddp():
    """DDP averages 438 MB of gradients per step. In a ring of four, each GPU sends 1.5 times as much. At NVLink's rate
    this takes at least 1.4 ms, less than 1 % of a step at batch 16: little, but not nothing."""
    sent = through_a_link(traffic(_MODEL, "ddp", _GPUS), _GPUS) / 1e6
    return _stated(EIGHT, "sent by DDP between GPUs"), sent, sent <= _stated(EIGHT, "sent by DDP between GPUs")


@claim(FOUR, "the model has 109 MB of parameters (recomputed: 4 bytes each)", "MB")
def parameters():
    """The model has 109 million parameters, and a float32 number takes 4 bytes."""
    megabytes = 4 * _MODEL.parameters / 1e6
    return _stated(FOUR, "parameters"), megabytes, _same(_stated(FOUR, "parameters"), megabytes)


def _saved(report: str, batch: int) -> float:
    """Return the MiB by which FSDP's fullest GPU is below DDP's."""
    return (_run(report, batch)["peak_bytes"] - _run(report, batch, "fsdp_full")["peak_bytes"]) / 2**20


@claim(FOUR, "FSDP saves 733 MiB per GPU (recomputed: the most that sharding can save)", "MiB", digits=4)
def saving():
    """Sharding can save at most three quarters of 16 bytes per parameter on four GPUs."""
    most = (1 - 1 / _GPUS) * _STATE_BYTES * _MODEL.parameters / 2**20
    return round(_saved(FOUR, 64)), most, _saved(FOUR, 64) <= 1.02 * most


@claim(
    EIGHT,
    "FSDP saves more at batch 16 than at batch 64, as a share of the peak (recomputed: with equal savings in MiB)",
    "times as much",
    explained=True,
)
def saving_by_batch():
    """As a share it holds: FSDP saves 7.0 % of the peak at batch 16 and 2.0 % at batch 64. In MiB it saves the same at
    both batches. The peak grows with the batch, because activations do, and these strategies do not shard
    activations."""
    peaks = {batch: _run(EIGHT, batch)["peak_bytes"] for batch in (16, 64)}
    shares = {batch: _saved(EIGHT, batch) * 2**20 / peak for batch, peak in peaks.items()}
    ratio, due = shares[16] / shares[64], peaks[64] / peaks[16]
    return round(ratio, 2), due, _same(ratio, due)


@claim(FOUR, "FSDP full shards block by block (recomputed: what this should save)", "MiB", digits=4)
def wrapping():
    """On four GPUs the model as one group should save 522 MiB, gradient-only sharding 913 MiB and full sharding
    1 156 MiB. The printed saving lies between the first two. FSDP's peak varies by 171 MiB between seeds, but DDP's by
    1 MiB. What the reports wrapped cannot be told from it."""
    held = holdings(ranks=_GPUS).set_index("strategy")["predicted"]
    should = held["ddp"] - held["fsdp_full"]
    return round(_saved(FOUR, 64)), should, True if abs(_saved(FOUR, 64) / should - 1) <= 0.05 else None


@claim(FOUR, "BERT with dropout 0.1 needs 575 MB per sample (recomputed: plain attention on our H200s)", "MB")
def memory_with_dropout():
    """Our recorded run of this setup needs more. Without dropout it needs less than printed, and with fused attention
    much less. The reports do not print what their attention keeps."""
    printed = printed_per_sample()[report_names()[FOUR]]
    table = per_sample(replay("h200x2/ddp_fsdp/asreported"))
    measured = table[(table["attention"] == "plain") & (table["dropout"] > 0)]["peak_mb"].iloc[0]
    return printed, measured, True if _same(printed, measured) else None
