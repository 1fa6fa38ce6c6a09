"""Rows → times of steps and updates, what of an update is sending, and the least that a machine needs."""

from __future__ import annotations

import pandas as pd

from labkit.labs.optimizer_sharding.tables.memory import sizes, sourced
from labkit.labs.optimizer_sharding.theory.balance import fullest_bucket
from labkit.labs.optimizer_sharding.theory.ledger import owned
from labkit.labs.optimizer_sharding.theory.updates import MOVED_BYTES, sent_s
from labkit.node import limits

PARTS = ("step", "update", "local")
TORCHS = ("zero_redundancy", "zero_buckets")


def steps(run) -> pd.DataFrame:
    """Give, an optimizer, kernel and way: ms of a step, its update, an update that sends nothing, each with its spread.

    `exposed_ms` is what sending adds to an update. `least_local_ms` and `least_sent_ms`: bytes over the datasheet's
    rates of memory and links, NaN where no datasheet is known. `over_torch` and `step_over_torch`: update and step
    over those of the faster of torch's two.
    """
    table = _parts(run, ["optimizer", "kernel", "way"])
    model, ranks = sizes(run.plan), run.plan.gpus
    spec = _spec(run)
    hbm, link = (spec.hbm_gb_per_s, limits.ring_bus_limit_gb_per_s(spec)) if spec else (None, None)
    moved = [MOVED_BYTES[row.optimizer, row.kernel] * owned(model, row.way, ranks) for row in table.itertuples()]
    table["least_local_ms"] = 1e3 * limits.least_seconds_to_move(pd.Series(moved, dtype=float), hbm)
    table["least_sent_ms"] = [_least_sent_ms(sum(model), ranks, way, link) for way in table["way"]]
    for column, part in (("over_torch", "update"), ("step_over_torch", "step")):
        torchs = table[f"{part}_ms"].where(table["way"].isin(TORCHS))
        fastest = torchs.groupby([table["optimizer"], table["kernel"]]).transform("min")
        table[column] = table[f"{part}_ms"] / fastest
    return sourced(table, run)


def buckets(run) -> pd.DataFrame:
    """Give, a size of buckets: how many there are, ms of the update and of its local part, with spreads; exposed_ms."""
    table = _parts(run, ["bucket_mib"])
    bytes_each = [4 * fullest_bucket(sizes(run.plan), 2**18 * size) for size in table["bucket_mib"]]
    table["fullest_mib"] = pd.Series(bytes_each, dtype=float) / 2**20
    return sourced(table, run)


def _parts(run, by: list[str]) -> pd.DataFrame:
    """Give the medians and spreads of every part, a row a setting."""
    medians = run.medians([*by, "part"], "ms")
    found = medians[by].drop_duplicates().reset_index(drop=True)
    for part in PARTS:
        own = medians[medians["part"] == part]
        if len(own):
            named = {"ms": f"{part}_ms", "spread_ms": f"spread_{part}_ms"}
            found = found.merge(own[[*by, *named]].rename(columns=named), on=by, how="left")
    found["exposed_ms"] = found["update_ms"] - found["local_ms"]
    return found


def _spec(run):
    return limits.spec(run.node.gpus[0].name) if run.plan.device == "cuda" and run.node.gpus else None


def _least_sent_ms(parameters: int, ranks: int, way: str, link: float | None) -> float:
    if way == "unsharded":
        return 0.0
    return float("nan") if link is None else 1e3 * sent_s(parameters, ranks, link, in_turn=way in TORCHS)
