"""Rows of what was sent → when collectives were called and how large they were, beside theory; and at what rate."""

from __future__ import annotations

import pandas as pd

from labkit.labs.ddp_from_scratch.tables.steps import SETTING, about, implementations
from labkit.labs.ddp_from_scratch.theory.buckets import messages
from labkit.node import limits
from labkit.tables.rows import entries
from labkit.theory.traffic import Sent, through_a_link

MIB = 2**20
COUNTS = ["collectives", "during_backward", "before_last_gradient", "gradients", "gradients_after_first"]


def overlap(run) -> pd.DataFrame:
    """Give one row a setting: what rank 0 called in one step, and when, beside what theory has it call.

    Columns: strategy, bucket_mb; collectives, those called before backward was over, and those called while a gradient
    was still to come; gradients, and those that came after the first collective; `due` collectives; sent_mib and
    due_mib; largest_mib and last_mib of one collective; `equal`: count and sizes are theory's (torch's DDP orders its
    buckets as its first backward went, not by the model's order: of it, count and sum).
    """
    rows = entries(run, "sent").reindex(columns=["rank", *SETTING, *COUNTS, "sizes_bytes"])
    rows = rows[rows["rank"] == 0].drop_duplicates(SETTING)
    parts = []
    for row in rows.to_dict("records"):
        due, sizes = messages(run.plan.model, row["strategy"], row["bucket_mb"]), list(row["sizes_bytes"])
        same = (len(sizes), sum(sizes)) == (len(due), sum(due)) if row["strategy"] == "ddp" else sizes == due
        parts.append(
            {
                **{name: row[name] for name in SETTING},
                **{name: int(row[name]) for name in COUNTS},
                "due": len(due),
                "sent_mib": sum(sizes) / MIB,
                "due_mib": sum(due) / MIB,
                "largest_mib": max(sizes, default=0) / MIB,
                "last_mib": sizes[-1] / MIB if sizes else 0.0,
                "equal": same,
            }
        )
    columns = [*SETTING, *COUNTS, "due", "sent_mib", "due_mib", "largest_mib", "last_mib", "equal"]
    return about(pd.DataFrame(parts, columns=columns), run)


def sending(run) -> pd.DataFrame:
    """Give, for the strategies that send after backward, the rate at which they did, beside what the links allow.

    Columns: strategy, link_mib (what a ring sends through a link), waited_ms, bus_gb_per_s, limit, share_of_limit,
    verdict; least_ms is what the link alone needs. Flat's time has its two copies in it.
    """
    table = implementations(run)
    table = table[table["strategy"].isin(["naive", "flat"])][["strategy", "waited_ms"]].reset_index(drop=True)
    whole = sum(messages(run.plan.model, "flat"))
    link = through_a_link([Sent("all-reduce", 1, whole)], run.plan.gpus)
    known = limits.spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None
    rate = limits.bus_bandwidth_limit(known, run.plan.gpus, "any")
    table["link_mib"] = link / MIB
    table["bus_gb_per_s"] = link / table["waited_ms"] / 1e6
    table["least_ms"] = 1e3 * limits.least_seconds_to_move(link, rate)
    return about(limits.check(table, "bus_gb_per_s", rate), run)
