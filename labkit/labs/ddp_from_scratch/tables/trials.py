"""Trials → tables: awkward cases beside one process, and what gives each bug away."""

from __future__ import annotations

import pandas as pd

from labkit.labs.ddp_from_scratch.tables.steps import about
from labkit.labs.ddp_from_scratch.theory.buckets import MIB, messages
from labkit.tables.rows import entries

ERRORS = ["gradient_error", "weight_error", "buffer_error", "apart"]
MEANING = {
    "plain": "every rank made other weights; rank 0's count",
    "tied": "one weight in two places: its gradient is their sum, and is sent once",
    "frozen": "weights that need no gradient are not sent",
    "unused": "a layer that no forward calls keeps no gradient",
    "unused_on_some": "a weight without a gradient on one rank counts as zero there",
    "buffers": "a running mean follows rank 0's samples; all ranks take it over after each step",
    "accumulation": "two micro-batches, the first under no_sync",
    "two_backwards": "two backwards, both exchanged, before one step",
    "kept_gradients": "gradients are never cleared: they add up over the steps",
    "uneven": "ranks have unequally many samples: the mean of the ranks' means",
    "weighted": "the same, losses scaled by their shares: the mean over all samples",
    "no_samples": "the last rank has no samples and calls finish alone",
    "bfloat16": "weights and gradients in bfloat16",
    "mixed": "some weights in bfloat16, the others in float32",
}
# float32 rounds to 6e-8 and bfloat16 to 4e-3, a few times in a row.
TOLERANCES = {"bfloat16": 2e-2, "mixed": 2e-2}
TOLERANCE = 1e-5


def equality(run) -> pd.DataFrame:
    """Give one row a case and strategy: the worst errors over ranks and seeds, and whether all are in tolerance.

    Columns: case, strategy, ERRORS, none_right (no rank has a gradient where one process has none, nor lacks one),
    tolerance, equal. Ranks may not differ at all.
    """
    rows = entries(run, "equality").reindex(columns=["case", "strategy", *ERRORS, "none_right"])
    groups = rows.groupby(["case", "strategy"], sort=False)
    table = groups[ERRORS].max().join(groups["none_right"].min().astype(bool)).reset_index()
    table["tolerance"] = table["case"].map(TOLERANCES).fillna(TOLERANCE)
    close = table[ERRORS[:3]].le(table["tolerance"], axis=0).all(axis=1)
    table["equal"] = close & (table["apart"] == 0) & table["none_right"]
    return about(table, run)


def cases(run) -> pd.DataFrame:
    """Give one row a case: what it means, its largest error over strategies, its tolerance, and whether all hold."""
    table = equality(run)
    table["worst_error"] = table[ERRORS].max(axis=1)
    how = {"worst_error": "max", "tolerance": "first", "equal": "all", "strategy": "nunique"}
    found = table.groupby("case", sort=False).agg(how).reset_index().rename(columns={"strategy": "strategies"})
    found.insert(1, "meaning", found["case"].map(MEANING))
    return about(found, run)


def symptoms(run) -> pd.DataFrame:
    """Give one row a variant: how far its gradients are from the right ones, and what it sent.

    Columns: variant, ranks; `error_rank_0`, all that a test on rank 0 sees, `error_worst` over all ranks, and
    `error_later`, the worst once everything has arrived; `ratio` along the right gradients on rank 0; `start_apart`,
    the weights' worst difference from rank 0's; collectives and `due`, as many as the bucket size asks for;
    largest_mib, bucket_mb, and before_last_gradient, the collectives called while a gradient was still to come.
    """
    rows = entries(run, "trial")
    parts = []
    for variant, group in rows.groupby("variant", sort=False):
        first = group[group["rank"] == 0].iloc[0]
        parts.append(
            {
                "variant": variant,
                "ranks": int(first["ranks"]),
                "error_rank_0": first["error"],
                "error_worst": group["error"].max(),
                "error_later": group["later_error"].max(),
                "ratio": first["ratio"],
                "start_apart": group["start_apart"].max(),
                "collectives": int(first["collectives"]),
                "due": len(messages(run.plan.model, "bucketed", first["bucket_mb"])),
                "largest_mib": max(first["sizes_bytes"]) / MIB,
                "bucket_mb": first["bucket_mb"],
                "before_last_gradient": int(first["before_last_gradient"]),
            }
        )
    return about(pd.DataFrame(parts), run)
