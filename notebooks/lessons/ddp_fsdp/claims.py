"""What two course reports say about BERT under DDP and FSDP, recomputed from their figures, formulas and our runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from labkit.engine.run import replay
from labkit.node import limits
from labkit.tables.claims import Stated, within
from labkit.tables.published import published, report_names
from labkit.theory.shapes import bert
from labkit.theory.traffic import through_a_link, traffic
from lessons.ddp_fsdp.tables import holdings, per_sample, printed_differences, printed_per_sample, printed_runs

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"
RECORDED = "h200x2/ddp_fsdp/asreported"
_H100: Any = limits.spec("NVIDIA H100 80GB HBM3")
_MODEL = bert(hidden=768, layers=12, vocabulary=30522, positions=512)
_GPUS = 4
_STATE_BYTES = 16  # per parameter in float32: itself, its gradient and AdamW's two states
_RESOLVED = 2.0  # standard errors
_SAME = within(1.1)  # two steps, or two memories, of the same batch differ by less


def _undecided_unless(holds: Any) -> Any:
    """Return the rule that says True where `holds` does, and else that the printed figures do not decide it."""
    return lambda printed, recomputed: True if holds(printed, recomputed) else None


def _run(report: str, batch: int, strategy: str = "ddp") -> pd.Series:
    """Return what a report prints of a strategy at a batch; the peak is that of its fullest GPU."""
    return printed_runs().set_index(["report", "global_batch", "strategy"]).loc[(report, batch, strategy)]


def _stated(report: str, statement: str) -> float:
    return float(published("ddp_fsdp_statements").set_index(["report", "statement"]).loc[(report, statement), "value"])


def _shared() -> float | None:
    """Return a quarter of the batch, if no H100 could compute all of it in the printed step; TF32 would be faster."""
    flop = 3 * 12 * (24 * 768**2 * 512 + 4 * 768 * 512**2)  # of a sample: products of weights and of attention
    most = _H100.tflops("fp32") * 1e12 * _run(FOUR, 64)["step_seconds"] / flop
    return 64 / _GPUS if most < 64 else None


def _samples_by_time(batch: int) -> float:
    return 64 / _GPUS * _run(EIGHT, batch)["step_seconds"] / _run(FOUR, 64)["step_seconds"]


def _rate(batch: int) -> float:
    return _GPUS * batch / _run(EIGHT, batch)["step_seconds"]


def _difference(report: str, batch: int) -> pd.Series:
    return printed_differences().set_index(["report", "global_batch"]).loc[(report, batch)]


def _loss_percent(report: str, batch: int, digits: int = 2) -> float:
    return round(-100 * _difference(report, batch)["difference"], digits)


def _two_errors_percent(report: str, batch: int) -> float:
    return 100 * _RESOLVED * _difference(report, batch)["standard_error"]


def _saved_mib(report: str, batch: int) -> float:
    """Return the MiB by which FSDP's fullest GPU is below DDP's."""
    return (_run(report, batch)["peak_bytes"] - _run(report, batch, "fsdp_full")["peak_bytes"]) / 2**20


def _saved_ratio() -> float:
    shares = {batch: _saved_mib(EIGHT, batch) / _run(EIGHT, batch)["peak_bytes"] for batch in (16, 64)}
    return round(shares[16] / shares[64], 2)


def _should_save_mib() -> float:
    held = holdings(ranks=_GPUS).set_index("strategy")["predicted"]
    return held["ddp"] - held["fsdp_full"]


def _by_attention(attention: str) -> float:
    """Return the MB that a sample adds to our recorded peak, with dropout."""
    table = per_sample(replay(RECORDED))
    return table[(table["attention"] == attention) & (table["dropout"] > 0)]["peak_mb"].iloc[0]


def _printed_mb(report: str) -> float:
    return printed_per_sample()[report_names()[report]]


_RATES, _PEAKS = "table of DDP and FSDP: rates and step times", "table of DDP and FSDP: peak memory"


def _share(batch: int, *, chosen: bool) -> Stated:
    return Stated(
        name=f"share_of_{batch}_by_time",
        report=EIGHT,
        where=_RATES,
        says=f"Four GPUs train a global batch of {batch}: each has a quarter of it",
        printed=lambda: batch / _GPUS,
        recomputed=partial(_samples_by_time, batch),
        recomputes="from the time of a step",
        holds=_SAME,
        unit="samples per GPU",
        reason="Compare the step with the other report's, of 16 samples per GPU: each GPU had the whole batch.",
        chosen=chosen,
    )


def _counted_once(batch: int, *, chosen: bool) -> Stated:
    return Stated(
        name=f"rate_at_{batch}",
        report=EIGHT,
        where=_RATES,
        says=f"DDP's rate at batch {batch}",
        printed=lambda: _run(EIGHT, batch)["samples_per_second"],
        recomputed=partial(_rate, batch),
        recomputes=f"four GPUs with {batch} samples each",
        holds=_SAME,
        unit="samples/s",
        reason="The report counts the batch once per step, but each of its four GPUs processed all of it.",
        chosen=chosen,
    )


def _slower(name: str, report: str, batch: int, *, chosen: bool) -> Stated:
    return Stated(
        name=name,
        report=report,
        where=_RATES,
        says=f"FSDP is slower than DDP at batch {batch}, by",
        printed=partial(_loss_percent, report, batch),
        recomputed=partial(_two_errors_percent, report, batch),
        recomputes="two standard errors",
        holds=_undecided_unless(lambda printed, recomputed: printed > recomputed),
        unit="%",
        digits=2,
        reason="FSDP's three seeds differ a lot. A difference below two standard errors can be chance.",
        chosen=chosen,
    )


CLAIMS = (
    _share(64, chosen=True),
    _counted_once(64, chosen=True),
    Stated(
        name="overhead",
        report=FOUR,
        where="text on FSDP's overhead",
        says="FSDP costs less than this share of DDP's rate",
        printed=lambda: _stated(FOUR, "overhead of FSDP is less than"),
        recomputed=partial(_loss_percent, FOUR, 64, 6),
        recomputes="from the report's own rates",
        holds=lambda printed, recomputed: recomputed < printed,
        unit="%",
        digits=2,
        reason="The report's own table prints a loss that is twice the stated limit.",
    ),
    _slower("slower_at_64_in_the_other", EIGHT, 64, chosen=True),
    Stated(
        name="sent_by_ddp",
        report=EIGHT,
        where="text on communication",
        says="DDP has no communication between GPUs",
        printed=lambda: _stated(EIGHT, "sent by DDP between GPUs"),
        recomputed=lambda: through_a_link(traffic(_MODEL, "ddp", _GPUS), _GPUS) / 1e6,
        recomputes="a ring all-reduce",
        holds=lambda printed, recomputed: recomputed <= printed,
        unit="MB per GPU and step",
        reason="DDP averages the gradients of all parameters in each step. In a ring of four, each GPU sends 1.5 times "
        "their bytes.",
    ),
    Stated(
        name="parameters",
        report=EIGHT,
        where="text on the model's size",
        says="The model has this many MB of parameters",
        printed=lambda: _stated(EIGHT, "parameters"),
        recomputed=lambda: 4 * _MODEL.parameters / 1e6,
        recomputes="4 bytes each",
        holds=_SAME,
        unit="MB",
        reason="The model has 109 million parameters, and a float32 number takes 4 bytes.",
        chosen=False,
    ),
    Stated(
        name="fused_attention",
        report=EIGHT,
        where="printed model and peak memory",
        says="BERT with `BertSdpaSelfAttention` and dropout: what a sample adds to the peak",
        printed=partial(_printed_mb, EIGHT),
        recomputed=partial(_by_attention, "fused"),
        recomputes="fused attention, on our H200s",
        holds=_undecided_unless(_SAME),
        unit="MB per sample",
        reason="A fused kernel keeps much less than printed. The report does not say which kernel torch chose, or "
        "what else grew with the batch.",
    ),
    Stated(
        name="share_by_memory",
        report=EIGHT,
        where=_PEAKS,
        says="Peaks at batch 16 and 64 of four GPUs that share a batch: the growth per sample",
        printed=lambda: _GPUS * _printed_mb(EIGHT),
        recomputed=partial(_printed_mb, FOUR),
        recomputes="in the other report: its one peak less 16 bytes per parameter",
        holds=_SAME,
        unit="MB per sample",
        digits=4,
        reason="With the whole batch on each GPU, a sample takes a quarter of that: what it takes in the other report.",
        chosen=False,
    ),
    Stated(
        name="shared_batch",
        report=FOUR,
        where=_RATES,
        says="Four GPUs train a global batch of 64: each has a quarter of it",
        printed=lambda: 64 / _GPUS,
        recomputed=_shared,
        recomputes="64 are too many for an H100 in float32",
        reason="In the printed time no H100 computes 64 samples in float32.",
        holds=_undecided_unless(lambda printed, recomputed: printed == recomputed),
        unit="samples per GPU",
        chosen=False,
    ),
    _share(16, chosen=False),
    _counted_once(16, chosen=False),
    _slower("slower_at_64", FOUR, 64, chosen=False),
    _slower("slower_at_16", EIGHT, 16, chosen=False),
    Stated(
        name="saving",
        report=FOUR,
        where=_PEAKS,
        says="FSDP lowers the peak of the fullest GPU by",
        printed=lambda: round(_saved_mib(FOUR, 64)),
        recomputed=lambda: (1 - 1 / _GPUS) * _STATE_BYTES * _MODEL.parameters / 2**20,
        recomputes="the most that sharding can save",
        holds=lambda printed, recomputed: printed <= 1.02 * recomputed,
        unit="MiB",
        digits=4,
        reason="Sharding on four GPUs can save at most three quarters of 16 bytes per parameter.",
        chosen=False,
    ),
    Stated(
        name="saving_by_batch",
        report=EIGHT,
        where=_PEAKS,
        says="As a share of the peak, FSDP saves more at batch 16 than at batch 64: the ratio of the shares",
        printed=_saved_ratio,
        recomputed=lambda: _run(EIGHT, 64)["peak_bytes"] / _run(EIGHT, 16)["peak_bytes"],
        recomputes="with equal savings in MiB",
        holds=_SAME,
        unit="×",
        reason="In MiB it saves the same at both batches. The peak grows with the activations, which are not sharded.",
        chosen=False,
    ),
    Stated(
        name="wrapping",
        report=FOUR,
        where=_PEAKS,
        says="FSDP full shards block by block: the peak falls by",
        printed=lambda: round(_saved_mib(FOUR, 64)),
        recomputed=_should_save_mib,
        recomputes="what this should save",
        holds=_undecided_unless(within(1.05)),
        unit="MiB",
        digits=4,
        reason="The printed saving lies between those of one group and of gradient-only sharding. What was wrapped "
        "cannot be told from it.",
        chosen=False,
    ),
    Stated(
        name="memory_with_dropout",
        report=FOUR,
        where=_PEAKS,
        says="BERT with dropout 0.1: what a sample adds to the peak",
        printed=partial(_printed_mb, FOUR),
        recomputed=partial(_by_attention, "plain"),
        recomputes="plain attention, on our H200s",
        holds=_undecided_unless(_SAME),
        unit="MB per sample",
        reason="With dropout, plain attention needs more than printed and fused attention less. What the report's "
        "attention keeps is not printed.",
        chosen=False,
    ),
)
