"""Rows → what a rank holds around an update: each item by formula, the allocator's peak, what is unexplained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node import limits
from labkit.provenance import like, of_run
from labkit.tables.rows import entries
from labkit.theory.transformer import activations
from lessons.optimizer_sharding.theory import (
    ITEMS,
    MOVED_BYTES,
    fullest_bucket,
    ledger,
    owned_elements,
    sent_s,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run
    from lessons.optimizer_sharding.plan import Sharding

MIB = 2**20
_BY = ["kernel", "way", "step", "moment"]


def sizes(plan: Sharding) -> list[int]:
    """Return the elements of each parameter of the plan's model, in order."""
    return [math.prod(shape) for shape in plan.model.shapes]


def _plan(run: Run) -> Any:
    """Return the run's plan; of which class is not known to the engine."""
    return run.plan


def memory(run: Run) -> pd.DataFrame:
    """Return one row per kernel, way, step and moment: MiB by item, their sum `predicted`, the `peak`, unexplained.

    All are of the fullest rank, at the fullest time since the moment before. `unexplained_share` is of the peak, NaN
    on a CPU, where there is no allocator to ask. `counted_error`: the largest relative difference between what the
    ranks' tensors hold of parameters, gradients and states, and the formula, whichever way shares them.
    """
    rows, plan = entries(run, "memory"), _plan(run)
    rows = rows.reindex(columns=[*dict.fromkeys([*rows, "allocated_mib", "peak_mib"])])
    kept = activations(plan.samples * plan.sequence, plan.hidden, plan.inner, plan.layers, plan.heads, plan.vocabulary)
    model, parts = sizes(plan), []
    for setting, group in rows.groupby(_BY, sort=False):
        kernel, way, step, moment = setting
        buckets = {"kernel": kernel, "bucket_bytes": MIB * group["bucket_mib"].iloc[0]}
        items = ledger(model, way, plan.gpus, moment, step, kept, **buckets)
        counted = {item: group[f"{item}_mib"].max() * MIB for item in ("parameters", "gradients", "states")}
        by_formula = items | ({"gradients": items["parameters"]} if moment == "before update" else {})
        errors = [abs(counted[item] / by_formula[item] - 1) if by_formula[item] else counted[item] for item in counted]
        parts.append(
            dict(zip(_BY, setting, strict=True))
            | {item: items[item] / MIB for item in ITEMS}
            | {
                "predicted": sum(items.values()) / MIB,
                "held": group["allocated_mib"].max(),
                "peak": group["peak_mib"].max(),
                "counted_states": counted["states"] / MIB,
                "counted_error": max(errors),
            }
        )
    columns = [*_BY, *ITEMS, "predicted", "held", "peak", "counted_states", "counted_error"]
    table = pd.DataFrame(parts, columns=columns)
    table["unexplained"] = table["peak"] - table["predicted"]
    table["unexplained_share"] = table["unexplained"] / table["peak"]
    return of_run(table, run)


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the kernels and ways that have every moment: of none that ran out of memory on the way."""
    moments = table.groupby(["kernel", "way"])["moment"].transform("size")
    return table[moments == moments.max()]


def saving(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per kernel and way that shards: MiB of peak less than unsharded, by formula and as measured.

    The peak is the fullest moment's. `states` and `temporary` say what of the predicted saving is which. A way that
    ran out of memory is left out.
    """
    rows = []
    for kernel, group in complete(table).groupby("kernel", sort=False):
        fullest = {way: moments.loc[moments["predicted"].idxmax()] for way, moments in group.groupby("way", sort=False)}
        peaks = group.groupby("way")["peak"].max()
        if "unsharded" not in fullest:
            continue
        unsharded = fullest["unsharded"]
        rows += [
            {
                "kernel": kernel,
                "way": way,
                "measured": peaks["unsharded"] - peaks[way],
                "peak": peaks[way],
                **{item: unsharded[item] - moment[item] for item in ("states", "temporary", "predicted")},
            }
            for way, moment in fullest.items()
            if way != "unsharded"
        ]
    columns = ["kernel", "way", "states", "temporary", "predicted", "measured", "peak"]
    return like(pd.DataFrame(rows, columns=columns), table)


def sent(run: Run) -> pd.DataFrame:
    """Return one row per way that shards: the collective that sends an update's parameters, its calls, their MiB.

    `equal` where these are the model's parameters once, but for a few elements of padding a call.
    """
    rows = entries(run, "traffic")
    rows = rows[(rows["rank"] == 0) & (rows["kernel"] == _plan(run).kernels[0])]
    table = rows[["way", "collective", "calls"]].reset_index(drop=True)
    table["sent_mib"] = (rows["sent_bytes"] / MIB).to_numpy()
    table["parameters_mib"] = 4 * sum(sizes(run.plan)) / MIB
    padding = 4 * run.plan.gpus * table["calls"] / MIB
    table["equal"] = (table["sent_mib"] - table["parameters_mib"]).between(0, padding)
    return of_run(table, run)


_TORCHS = ("zero_redundancy", "zero_buckets")


def steps(run: Run) -> pd.DataFrame:
    """Return one row per optimizer, kernel and way: ms of a step, of its update, of one that sends nothing; spreads.

    `exposed_ms` is what sending adds to an update. `least_local_ms` and `least_sent_ms`: bytes over the datasheet's
    rates of memory and links, NaN where no datasheet is known. `over_torch` and `step_over_torch`: update and step
    over those of the faster of torch's two; `spread_over_torch` and `spread_step_over_torch` of both medians together.
    A setting that is not complete, in a run that ended before it was, is left out.
    """
    table = _parts(run, ["optimizer", "kernel", "way"], ("step", "update", "local"))
    model, ranks = sizes(run.plan), run.plan.gpus
    spec = _spec(run)
    hbm, link = (spec.hbm_gb_per_s, limits.ring_bus_limit_gb_per_s(spec)) if spec else (None, None)
    moved = [
        MOVED_BYTES[row.optimizer, row.kernel] * owned_elements(model, row.way, ranks) for row in table.itertuples()
    ]
    table["least_local_ms"] = 1e3 * limits.least_seconds_to_move(pd.Series(moved, dtype=float), hbm)
    table["least_sent_ms"] = [_least_sent_ms(sum(model), ranks, way, link) for way in table["way"]]
    for column, part in (("over_torch", "update"), ("step_over_torch", "step")):
        table[[column, f"spread_{column}"]] = _over_torch(table, part)
    return of_run(table, run)


def buckets(run: Run) -> pd.DataFrame:
    """Return one row per size of buckets: ms of the update and of its local part, with spreads; exposed_ms."""
    table = _parts(run, ["bucket_mib"], ("update", "local"))
    bytes_each = [4 * fullest_bucket(sizes(run.plan), 2**18 * size) for size in table["bucket_mib"]]
    table["fullest_mib"] = pd.Series(bytes_each, dtype=float) / 2**20
    return of_run(table, run)


def _over_torch(table: pd.DataFrame, part: str) -> pd.DataFrame:
    """Return the part's time over that of the faster of torch's two, and the spread of that ratio."""
    torch_rows = table[table["way"].isin(_TORCHS)].sort_values(f"{part}_ms").drop_duplicates(["optimizer", "kernel"])
    torch_rows = torch_rows[["optimizer", "kernel", f"{part}_ms", f"spread_{part}_ms"]]
    joined = table.merge(torch_rows, on=["optimizer", "kernel"], how="left", suffixes=("", "_torch")).set_index(
        table.index
    )
    fastest = joined[f"{part}_ms_torch"]
    ratio = joined[f"{part}_ms"] / fastest
    spread = (joined[f"spread_{part}_ms"] + ratio * joined[f"spread_{part}_ms_torch"]) / fastest
    return pd.DataFrame({"ratio": ratio, "spread": spread})


def _parts(run: Run, by: list[str], parts: tuple[str, ...]) -> pd.DataFrame:
    """Return the medians and spreads of the parts, one row per setting that has all of them."""
    medians = run.medians([*by, "part"], "ms")
    table = medians[by].drop_duplicates()
    for part in parts:
        part_rows = medians[(medians["part"] == part) & medians["ms"].notna()]
        column_names = {"ms": f"{part}_ms", "spread_ms": f"spread_{part}_ms"}
        table = table.merge(part_rows[[*by, *column_names]].rename(columns=column_names), on=by)
    table["exposed_ms"] = table["update_ms"] - table["local_ms"]
    return table


def _spec(run: Run):
    return limits.spec(run.node.gpus[0].name) if run.plan.device == "cuda" and run.node.gpus else None


def _least_sent_ms(parameters: int, ranks: int, way: str, link: float | None) -> float:
    if way == "unsharded":
        return 0.0
    return float("nan") if link is None else 1e3 * sent_s(parameters, ranks, link, in_turn=way in _TORCHS)
