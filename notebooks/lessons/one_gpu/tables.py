"""Rows of lab 17 → tables: rungs, batches beside their ledger, the head's loss, and what an optimizer changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.plans import GptPlan
from labkit.provenance import of_run, of_source
from labkit.tables import ledgers
from labkit.tables.rates import ladder as rungs
from labkit.tables.rates import rates, utilised
from labkit.theory.gpt import SIZES, VOCABULARY, activations, gpt
from labkit.theory.sizes import GIB, MIB

if TYPE_CHECKING:
    from labkit.engine.run import Run


def ladder(run: Run) -> pd.DataFrame:
    """Return per rung: its knob, step_ms, tokens_per_s with spread, times the one before, times the first, mfu.

    sm_mhz: the GPU's clock right after a step, median of the steps; NaN where it is not known.
    """
    plan = run.plan
    table = rungs(run, per_sample=plan.sequence, unit="tokens")
    precision = run.rows.drop_duplicates("knob").set_index("knob")["precision"]
    precision = precision.mask(precision.index.str.startswith("float8"), "float8")  # the peak of its products
    steps = run.rows_with(["sm_mhz", "warm_up"])
    table["sm_mhz"] = table["knob"].map(steps[steps["warm_up"] == 0].groupby("knob")["sm_mhz"].median())
    return utilised(table, run, table["knob"].map(precision))


def float8(run: Run) -> pd.DataFrame:
    """Return one row of a `Ladder`'s float8 rung beside "by hand": times, gradient_away, loss_away; none without both.

    times: its rate over that of bfloat16. gradient_away: the median over seeds of the difference's norm over the
    gradient's. loss_away: the largest difference of a step's losses, from the same weights and samples, over the loss.
    """
    rates_of, rows = ladder(run).set_index("knob")["tokens_per_s"], run.rows
    if not {"by hand", "float8 products"} <= {*rates_of.dropna().index}:
        return of_run(pd.DataFrame(columns=["times", "gradient_away", "loss_away"]), run)
    losses = rows[rows["entry"] == "step"].pivot_table(index=["seed", "iteration"], columns="knob", values="loss")
    away = (losses["float8 products"] / losses["by hand"] - 1).abs().max()
    times, gradient = rates_of["float8 products"] / rates_of["by hand"], run.entries("gradients")["away"].median()
    return of_run(pd.DataFrame([{"times": times, "gradient_away": gradient, "loss_away": away}]), run)


def batches(run: Run) -> pd.DataFrame:
    """Return per micro-batch on one GPU: tokens_per_s, mfu, peak and reserved MiB, the ledger's, and the status."""
    plan = run.plan
    table = rates(run, ["micro_batch", "batch"], per_sample=plan.sequence, unit="tokens")
    table = utilised(table, run, plan.precision)
    held = ledgers.memory(run, ["micro_batch"], GptPlan.forecast).set_index("micro_batch")
    for column in ("peak", "reserved"):
        table[f"{column}_mib"] = table["micro_batch"].map(held[column])
    due = {point.micro_batch: sum(plan.forecast(vars(point)).values()) for point in plan.points()}
    table["predicted_mib"] = table["micro_batch"].map(due) / MIB
    return table


def held(sequences: tuple[int, ...] = (1, 8, 32, 64), length: int = 1024) -> pd.DataFrame:
    """Return one row per number of sequences, by formula: the GiB of GPT-2 Large's weights, blocks and logits.

    Everything is bfloat16; weights_gib are 14 bytes per parameter: weight, float32 copy and two moments. Where backward
    starts, there are no gradients yet.
    """
    layers, hidden, heads = SIZES["GPT-2 Large"]
    weights = 14 * gpt(layers, hidden).parameters / GIB
    rows = []
    for count in sequences:
        kept = activations(layers, hidden, heads, VOCABULARY, count, length, element_bytes=2) / GIB
        logits = 2 * count * length * VOCABULARY / GIB
        rows.append({"sequences": count, "weights_gib": weights, "blocks_gib": kept - logits, "logits_gib": logits})
    return of_source(pd.DataFrame(rows), "theory: GPT-2 Large, bfloat16")


def head(run: Run) -> pd.DataFrame:
    """Return per way of the head's loss: ms with spread, peak_mib counted while it ran, and the status."""
    table = run.medians(["way"], "ms")
    peaks = run.entries("head", ["way", "peak_mib"]).groupby("way")["peak_mib"].max()
    return of_run(table.assign(peak_mib=table["way"].map(peaks)), run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return per variant: gains_moved, matrices_moved, first_update and last_update of its trial.

    All are over those of AdamW with float32 copies: how far LayerNorm's gains and the matrices are from where they
    began, and how far the first and the last step moved the weights.
    """
    columns = ["variant", "gains_moved", "matrices_moved", "first_update", "last_update"]
    rows = run.entries("trial", columns)
    return of_run(rows[columns].reset_index(drop=True), run)
