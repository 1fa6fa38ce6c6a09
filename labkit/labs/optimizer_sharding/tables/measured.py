"""Rows → what a rank holds around an update: each item by formula, the allocator's peak, what is unexplained."""

from __future__ import annotations

import math

import pandas as pd

from labkit.labs.optimizer_sharding.theory import (
    ITEMS,
    MOVED_BYTES,
    activations,
    fullest_bucket,
    ledger,
    owned_elements,
    sent_s,
)
from labkit.node import limits
from labkit.tables.rows import entries

MIB = 2**20
BY = ["kernel", "way", "step", "moment"]


def sizes(plan) -> list[int]:
    """Give the elements of each parameter of the plan's model, in order."""
    return [math.prod(shape) for shape in plan.model.shapes]


def memory(run) -> pd.DataFrame:
    """Give, a kernel, way, step and moment: MiB by item and formula, `predicted`, the allocator's `peak`, unexplained.

    All are of the fullest rank, at the fullest time since the moment before. `unexplained_share` is of the peak, NaN
    on a CPU, where there is no allocator to ask. `counted_error`: the largest relative difference between what the
    ranks' tensors hold of parameters, gradients and states, and the formula, whichever way shares them.
    """
    rows, plan = entries(run, "memory"), run.plan
    rows = rows.reindex(columns=[*dict.fromkeys([*rows, "allocated_mib", "peak_mib"])])
    kept = activations(plan.samples * plan.sequence, plan.hidden, plan.inner, plan.layers, plan.heads, plan.vocabulary)
    model, parts = sizes(plan), []
    for setting, group in rows.groupby(BY, sort=False):
        kernel, way, step, moment = setting
        buckets = {"kernel": kernel, "bucket_bytes": MIB * group["bucket_mib"].iloc[0]}
        items = ledger(model, way, plan.gpus, moment, step, kept, **buckets)
        counted = {item: group[f"{item}_mib"].max() * MIB for item in ("parameters", "gradients", "states")}
        due = items | ({"gradients": items["parameters"]} if moment == "before update" else {})
        errors = [abs(counted[item] / due[item] - 1) if due[item] else counted[item] for item in counted]
        parts.append(
            dict(zip(BY, setting, strict=True))
            | {item: items[item] / MIB for item in ITEMS}
            | {
                "predicted": sum(items.values()) / MIB,
                "held": group["allocated_mib"].max(),
                "peak": group["peak_mib"].max(),
                "counted_states": counted["states"] / MIB,
                "counted_error": max(errors),
            }
        )
    columns = [*BY, *ITEMS, "predicted", "held", "peak", "counted_states", "counted_error"]
    table = pd.DataFrame(parts, columns=columns)
    table["unexplained"] = table["peak"] - table["predicted"]
    table["unexplained_share"] = table["unexplained"] / table["peak"]
    return sourced(table, run)


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """Give the rows of the kernels and ways that have every moment: of none that ran out of memory on the way."""
    moments = table.groupby(["kernel", "way"])["moment"].transform("size")
    return table[moments == moments.max()]


def saving(table: pd.DataFrame) -> pd.DataFrame:
    """Give, a kernel and way that shards: MiB of peak less than unsharded, by formula and as measured; and its parts.

    The peak is the fullest moment's. `states` and `temporary` say what of the predicted saving is which. A way that
    ran out of memory is left out.
    """
    rows = []
    for kernel, group in complete(table).groupby("kernel", sort=False):
        top = {way: own.loc[own["predicted"].idxmax()] for way, own in group.groupby("way", sort=False)}
        peaks = group.groupby("way")["peak"].max()
        if "unsharded" not in top:
            continue
        whole = top["unsharded"]
        rows += [
            {
                "kernel": kernel,
                "way": way,
                "measured": peaks["unsharded"] - peaks[way],
                "peak": peaks[way],
                **{item: whole[item] - own[item] for item in ("states", "temporary", "predicted")},
            }
            for way, own in top.items()
            if way != "unsharded"
        ]
    columns = ["kernel", "way", "states", "temporary", "predicted", "measured", "peak"]
    saved = pd.DataFrame(rows, columns=columns)
    saved.attrs.update(table.attrs)
    return saved


def sent(run) -> pd.DataFrame:
    """Give, a way that shards: the collective by which an update sends parameters, its calls, and MiB of all of them.

    `equal` where these are the model's parameters once, but for a few elements of padding a call.
    """
    rows = entries(run, "traffic")
    rows = rows[(rows["rank"] == 0) & (rows["kernel"] == run.plan.kernels[0])]
    table = rows[["way", "collective", "calls"]].reset_index(drop=True)
    table["sent_mib"] = (rows["sent_bytes"] / MIB).to_numpy()
    table["parameters_mib"] = 4 * sum(sizes(run.plan)) / MIB
    padding = 4 * run.plan.gpus * table["calls"] / MIB
    table["equal"] = (table["sent_mib"] - table["parameters_mib"]).between(0, padding)
    return sourced(table, run)


def sourced(table: pd.DataFrame, run) -> pd.DataFrame:
    """Say where a table's numbers come from."""
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


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
    moved = [
        MOVED_BYTES[row.optimizer, row.kernel] * owned_elements(model, row.way, ranks) for row in table.itertuples()
    ]
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
