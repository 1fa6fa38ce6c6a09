"""Recorded sharded training beside the same accounting: was it compute-bound where theory says so?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node import limits
from labkit.provenance import of_run
from labkit.tables.lines import fits
from labkit.tables.rates import strategies
from labkit.theory.gpt import flop_per_token
from labkit.theory.lines import Link
from labkit.theory.traffic import Sent, through_a_link, traffic

if TYPE_CHECKING:
    from labkit.engine.run import Run

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
    found = pd.DataFrame(rows, columns=_COLUMNS).sort_values(["strategy", "tokens"], ignore_index=True)
    return of_run(found, strategies_run)


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
