"""What two course reports say about BERT under DDP and FSDP, recomputed from their figures, formulas and our runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import eq, ge
from typing import Any

import pandas as pd

from labkit.engine.recordings import replay
from labkit.tables.claims import Figures, within
from labkit.tables.published import EIGHT, FOUR, H100, published, report_names
from labkit.theory.sizes import MIB
from labkit.theory.traffic import through_a_link, traffic
from lessons.ddp_fsdp.tables import MODEL, holdings, per_sample, printed_differences, printed_per_sample, printed_runs

RECORDED = "h200x2/ddp_fsdp/asreported"
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


def _stated_number(report: str, statement: str) -> float:
    return float(published("ddp_fsdp_statements").set_index(["report", "statement"]).loc[(report, statement), "value"])


def _shared() -> float | None:
    """Return a quarter of the batch, if no H100 could compute all of it in the printed step; TF32 would be faster."""
    flop = 3 * 12 * (24 * 768**2 * 512 + 4 * 768 * 512**2)  # of a sample: products of weights and of attention
    most = H100.tflops("fp32") * 1e12 * _run(FOUR, 64)["step_seconds"] / flop
    return 64 / _GPUS if most < 64 else None


def _samples_by_time(batch: int) -> float:
    return 64 / _GPUS * _run(EIGHT, batch)["step_seconds"] / _run(FOUR, 64)["step_seconds"]


def _at_both_batches(printed: Callable[[int], float], recomputed: Callable[[int], float]) -> Figures:
    """Return the figures of the second report's batches, 64 and 16; the claim holds where both pairs agree."""

    def listed(figure: Callable[[int], float]) -> str:
        return ", ".join(f"{figure(batch):.3g}" for batch in (64, 16))

    return Figures(
        partial(listed, printed),
        partial(listed, recomputed),
        lambda *_: all(_SAME(printed(batch), recomputed(batch)) for batch in (64, 16)),
    )


def _difference(report: str, batch: int) -> pd.Series:
    return printed_differences().set_index(["report", "global_batch"]).loc[(report, batch)]


def _loss_percent(report: str, batch: int, digits: int = 2) -> float:
    return round(-100 * _difference(report, batch)["difference"], digits)


def _two_errors_percent(report: str, batch: int) -> float:
    return 100 * _RESOLVED * _difference(report, batch)["standard_error"]


def _saved_mib(report: str, batch: int) -> float:
    """Return the MiB by which FSDP's fullest GPU is below DDP's."""
    return (_run(report, batch)["peak_bytes"] - _run(report, batch, "fsdp_full")["peak_bytes"]) / MIB


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


def _slower(report: str, batch: int) -> Figures:
    """Return by how much FSDP is slower than DDP, and two standard errors: a smaller difference can be chance."""
    resolved = _undecided_unless(lambda printed, recomputed: printed > recomputed)
    return Figures(partial(_loss_percent, report, batch), partial(_two_errors_percent, report, batch), resolved)


FIGURES = {
    "share_by_time": _at_both_batches(lambda batch: batch / _GPUS, _samples_by_time),
    "rate": _at_both_batches(
        lambda batch: _run(EIGHT, batch)["samples_per_second"],
        lambda batch: _GPUS * batch / _run(EIGHT, batch)["step_seconds"],
    ),
    "overhead": Figures(
        lambda: _stated_number(FOUR, "overhead of FSDP is less than"),
        partial(_loss_percent, FOUR, 64, 6),
        lambda printed, recomputed: recomputed < printed,
    ),
    "slower_at_64_in_the_other": _slower(EIGHT, 64),
    "sent_by_ddp": Figures(
        lambda: _stated_number(EIGHT, "sent by DDP between GPUs"),
        lambda: through_a_link(traffic(MODEL, "ddp", _GPUS), _GPUS) / 1e6,
        ge,
    ),
    "parameters": Figures(lambda: _stated_number(EIGHT, "parameters"), lambda: 4 * MODEL.parameters / 1e6, _SAME),
    "fused_attention": Figures(partial(_printed_mb, EIGHT), partial(_by_attention, "fused"), _undecided_unless(_SAME)),
    "share_by_memory": Figures(lambda: _GPUS * _printed_mb(EIGHT), partial(_printed_mb, FOUR), _SAME),
    "shared_batch": Figures(lambda: 64 / _GPUS, _shared, _undecided_unless(eq)),
    "slower_at_64": _slower(FOUR, 64),
    "saving": Figures(
        lambda: round(_saved_mib(FOUR, 64)),
        lambda: (1 - 1 / _GPUS) * _STATE_BYTES * MODEL.parameters / MIB,
        lambda printed, recomputed: printed <= 1.02 * recomputed,
    ),
    "saving_by_batch": Figures(
        _saved_ratio, lambda: _run(EIGHT, 64)["peak_bytes"] / _run(EIGHT, 16)["peak_bytes"], _SAME
    ),
    "wrapping": Figures(lambda: round(_saved_mib(FOUR, 64)), _should_save_mib, _undecided_unless(within(1.05))),
    "memory_with_dropout": Figures(
        partial(_printed_mb, FOUR), partial(_by_attention, "plain"), _undecided_unless(_SAME)
    ),
}
