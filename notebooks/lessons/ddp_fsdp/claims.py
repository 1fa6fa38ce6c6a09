"""What two course reports say about BERT under DDP and FSDP, recomputed from their figures, formulas and our runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from labkit.engine.recordings import replay
from labkit.tables.claims import Figures, undecided, within
from labkit.tables.published import EIGHT, FOUR, published, report_names
from labkit.theory.sizes import MIB
from labkit.theory.traffic import through_a_link, traffic
from lessons.ddp_fsdp.tables import (
    MODEL,
    per_sample,
    printed_differences,
    printed_per_sample,
    printed_runs,
    template_per_sample,
)

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


def _stated(report: str, statement: str) -> str:
    return str(published("ddp_fsdp_statements").set_index(["report", "statement"]).loc[(report, statement), "value"])


def _stated_number(report: str, statement: str) -> float:
    return float(_stated(report, statement))


def _samples_by_text(batch: int) -> float:
    """Return the samples that each GPU stores by the report's text: a part of the batch, unless it says the whole."""
    stated = published("ddp_fsdp_statements").set_index("statement")["value"]["stored by each GPU"]
    return batch if stated == "the non-sharded batch" else batch / _GPUS


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


def _with_the_templates_head() -> float:
    """Return what a sample adds to our recorded peak, in MB: fused attention with dropout, and the template's head."""
    table = per_sample(replay(RECORDED))
    fused = table[(table["attention"] == "fused") & (table["dropout"] > 0)]
    return template_per_sample(fused["peak_mb"].iloc[0])


def _printed_mb(report: str) -> float:
    return printed_per_sample()[report_names()[report]]


def _slower(report: str, batch: int) -> Figures:
    """Return by how much FSDP is slower than DDP, and two standard errors: a smaller difference can be chance."""
    resolved = _undecided_unless(lambda printed, recomputed: printed > recomputed)
    return Figures(partial(_loss_percent, report, batch), partial(_two_errors_percent, report, batch), resolved)


def _as_bytes_or_millions(printed: float, megabytes: float) -> bool | None:
    """Return whether the printed MB are those of float32 parameters; None where they can be millions of parameters."""
    if _SAME(printed, megabytes):
        return True
    return None if _SAME(printed, MODEL.parameters / 1e6) else False


FIGURES = {
    "whole_batch": _at_both_batches(_samples_by_text, _samples_by_time),
    "rate": replace(
        _at_both_batches(
            lambda batch: _run(EIGHT, batch)["samples_per_second"],
            lambda batch: _GPUS * batch / _run(EIGHT, batch)["step_seconds"],
        ),
        holds=undecided,
    ),
    "overhead": Figures(
        lambda: _stated_number(FOUR, "overhead of FSDP is less than"),
        partial(_loss_percent, FOUR, 64, 6),
        lambda printed, recomputed: recomputed < printed,
    ),
    "slower_at_64_in_the_other": _slower(EIGHT, 64),
    "sent_by_ddp": Figures(
        lambda: _stated(EIGHT, "communication of DDP between GPUs"),
        lambda: through_a_link(traffic(MODEL, "ddp", _GPUS), _GPUS) / 1e6,
        lambda printed, sent: (printed == "none") == (sent == 0),
    ),
    "per_sample": Figures(lambda: round(_printed_mb(EIGHT), 1), _with_the_templates_head, _undecided_unless(_SAME)),
    "parameters": Figures(
        lambda: _stated_number(EIGHT, "parameters"), lambda: 4 * MODEL.parameters / 1e6, _as_bytes_or_millions
    ),
    "saving": Figures(
        lambda: round(_saved_mib(FOUR, 64)),
        lambda: (1 - 1 / _GPUS) * _STATE_BYTES * MODEL.parameters / MIB,
        lambda printed, recomputed: printed <= 1.02 * recomputed,
    ),
    "saving_by_batch": Figures(
        _saved_ratio, lambda: _run(EIGHT, 64)["peak_bytes"] / _run(EIGHT, 16)["peak_bytes"], _SAME
    ),
}
