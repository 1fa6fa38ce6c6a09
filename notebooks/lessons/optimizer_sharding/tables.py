"""Rows and theory of lab 11 → tables: memory, times, who owns what, stages, trials, and a report's figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.node import limits
from labkit.provenance import made_from, of_run, of_source, sources
from labkit.tables.ledgers import with_unexplained
from labkit.tables.published import H100
from labkit.theory.sizes import GB, MIB
from labkit.theory.transformer import SIZES, activations, transformer
from lessons.optimizer_sharding.theory import (
    ITEMS,
    MODELS,
    MOVED_BYTES,
    RULES,
    STAGES,
    STATE_BYTES,
    excess,
    ledger,
    owned_elements,
    rank_loads,
    sent_s,
    stage,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run
    from lessons.optimizer_sharding.plan import Sharding

_BY = ["kernel", "way", "step", "moment"]


def sizes(plan: Sharding) -> list[int]:
    """Return the elements of each parameter of the plan's model, in order."""
    return [math.prod(shape) for shape in plan.model.shapes]


def memory(run: Run) -> pd.DataFrame:
    """Return one row per kernel, way, step and moment: MiB by item, their sum `predicted`, the `peak`, unexplained.

    All are of the fullest rank, at the fullest time since the moment before. `unexplained_share` is of the peak, NaN
    on a CPU, where there is no allocator to ask. `counted_error`: the largest relative difference between what the
    ranks' tensors hold of parameters, gradients and states, and the formula, whichever way shares them.
    """
    rows, plan = run.entries("memory", ["allocated_mib", "peak_mib"]), run.plan
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
    table = with_unexplained(pd.DataFrame(parts, columns=columns))
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
    return made_from(pd.DataFrame(rows, columns=columns), table)


def sent(run: Run) -> pd.DataFrame:
    """Return one row per way that shards: the collective that sends an update's parameters, its calls, their MiB.

    `equal` where these are the model's parameters once, but for a few elements of padding a call.
    """
    rows = run.entries("traffic")
    rows = rows[(rows["rank"] == 0) & (rows["kernel"] == run.plan.kernels[0])]
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
    table = _parts(run)
    model, ranks = sizes(run.plan), run.plan.gpus
    spec = run.datasheet
    hbm, link = (spec.hbm_gb_per_s, limits.ring_bus_limit_gb_per_s(spec)) if spec else (None, None)
    moved = [
        MOVED_BYTES[row.optimizer, row.kernel] * owned_elements(model, row.way, ranks) for row in table.itertuples()
    ]
    table["least_local_ms"] = 1e3 * limits.least_seconds_to_move(pd.Series(moved, dtype=float), hbm)
    table["least_sent_ms"] = [_least_sent_ms(sum(model), ranks, way, link) for way in table["way"]]
    for column, part in (("over_torch", "update"), ("step_over_torch", "step")):
        table[[column, f"spread_{column}"]] = _over_torch(table, part)
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


def _parts(run: Run) -> pd.DataFrame:
    """Return the medians and spreads of step, update and local update, one row per setting that has all of them."""
    by = ["optimizer", "kernel", "way"]
    medians = run.medians([*by, "part"], "ms")
    table = medians[by].drop_duplicates()
    for part in ("step", "update", "local"):
        part_rows = medians[(medians["part"] == part) & medians["ms"].notna()]
        column_names = {"ms": f"{part}_ms", "spread_ms": f"spread_{part}_ms"}
        table = table.merge(part_rows[[*by, *column_names]].rename(columns=column_names), on=by)
    table["exposed_ms"] = table["update_ms"] - table["local_ms"]
    return table


def _least_sent_ms(parameters: int, ranks: int, way: str, link: float | None) -> float:
    if way == "unsharded":
        return 0.0
    return float("nan") if link is None else 1e3 * sent_s(parameters, ranks, link, in_turn=way in _TORCHS)


def exchanges(run: Run) -> pd.DataFrame:
    """Return one row per way: ms from each rank's gradients to new weights on all ranks, spread, count and status."""
    return run.medians(["way"], "ms")


_WIDE = 128_256  # words of Llama 3's vocabulary, under the smallest model


def balance() -> pd.DataFrame:
    """Return one row per model, number of ranks and rule: how much more than an equal part the fullest rank has.

    `excess`: the fullest rank's elements over an equal part, less one. Models: the course's five, and its smallest with
    a vocabulary of 128 256 words.
    """
    models = {name: transformer(*size[:3]) for name, size in SIZES.items()}
    models["small, 128 k words"] = transformer(*SIZES["small"][:3], vocabulary=_WIDE)
    rows = []
    for name, model in models.items():
        elements = [math.prod(shape) for shape in model.shapes]
        for count in (2, 4, 8):
            rows += [
                {
                    "model": name,
                    "ranks": count,
                    "rule": rule,
                    "excess": excess(rank_loads(elements, count, rule)),
                }
                for rule in RULES
            ]
    return of_source(pd.DataFrame(rows), "theory: the course's transformers, vocabulary 10 000 unless told")


def owned(run: Run) -> pd.DataFrame:
    """Return one row per way: the fullest and emptiest rank's states as shares of the whole, the fullest's excess.

    Shares are of bytes that the ranks' tensors hold after the last update, over all states of the model.
    """
    rows = run.entries("memory")
    last = rows[(rows["moment"] == "after update") & (rows["step"] == rows["step"].max())]
    last = last[last["kernel"] == last["kernel"].iloc[0]]
    whole = STATE_BYTES["adamw"] * sum(sizes(run.plan)) / MIB
    shares = (last["states_mib"] / whole).groupby(last["way"], sort=False).agg(["max", "min"])
    table = shares.rename(columns={"max": "fullest", "min": "emptiest"}).reset_index()
    table["excess"] = table["fullest"] * run.plan.gpus - 1
    return of_run(table, run)


_COUNTS = (1, 2, 4, 8, 16, 32, 64)


def stages(size: str, ranks: int) -> pd.DataFrame:
    """Return one row per stage: GB that a rank holds and sends per step, for AdamW in float32.

    `volume` is what is sent in units of all parameters' bytes, (N−1)/N taken as one.
    """
    elements = transformer(*SIZES[size][:3]).parameters
    rows = []
    for name in STAGES:
        held = stage(name, elements, ranks)
        unit = stage("ddp", elements, ranks).parameters * (ranks - 1) / ranks
        rows.append(
            {
                "stage": name,
                "held_gb": held.held / GB,
                "sent_gb": held.sent / 1e9,
                "volume": held.sent / unit if unit else 0.0,
            }
        )
    return of_source(pd.DataFrame(rows), f"theory: {size}, {ranks} ranks, float32", ranks=ranks)


def by_ranks(size: str) -> pd.DataFrame:
    """Return one row per stage and number of ranks: GB that a rank holds, AdamW in float32."""
    tables = [stages(size, ranks).assign(ranks=ranks) for ranks in _COUNTS]
    table = pd.concat(tables, ignore_index=True)[["stage", "ranks", "held_gb"]]
    return of_source(table, f"theory: {size}, float32")


_SAME = 1e-6
_SAME_SUM = 1e-3  # a reduce-scatter adds three or more gradients in another order than an all-reduce
SYMPTOMS = {"error": "max", "first_error": "max", "drift": "max", "saved": "min"}


def equality(run: Run) -> pd.DataFrame:
    """Return one row per way, optimizer and case: largest `error` and `drift` of the ranks, `moved`, `asked`, `equal`.

    Equal is an error of at most 1e-6 of a tensor's largest number, 1e-3 where gradients are scattered, after weights
    have moved by more.
    """
    rows = run.entries("equality")
    shown = {"error": "max", "drift": "max", "moved": "min", "asked": "max", "state_share": "max"}
    table = rows.groupby(["way", "optimizer", "case"], sort=False).agg(shown).reset_index()
    same = table["way"].map(lambda way: _SAME if way == "sharded" else _SAME_SUM)
    table["equal"] = (table["error"] <= same) & (table["drift"] <= _SAME) & (table["moved"] > 1000 * _SAME)
    return of_run(table, run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per variant: the worst of the ranks.

    `first_error` is after one step, `error` after all; `saved` is the share of a state_dict's numbers that are right.
    """
    return of_run(run.entries("trial").groupby("variant", sort=False).agg(SYMPTOMS).reset_index(), run)


def faults(row: dict) -> list[str]:
    """Return the names of the bugs that a variant's symptoms show; "wrong" where it is none that is known."""
    names = []
    if row["drift"] > _SAME:
        names.append("sends_nothing")
    elif row["first_error"] > _SAME:
        names.append("wrong")
    elif row["error"] > _SAME:
        names.append("stale_rate")
    if row["saved"] < 0.99:
        names.append("own_part")
    return names


_RANKS = 2


def report_peaks(published: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model and optimizer: GB of parameters, gradients and AdamW's moments, and the printed_gb.

    With sharded moments a rank holds one in two of them. Activations and temporaries come on top.
    """
    printed = published.set_index("sharded")["peak_gb"]
    rows = []
    for model in MODELS:
        gb = 4e-9 * transformer(*SIZES[model][:3]).parameters
        for sharded in ("no", "yes"):
            moments = 2 * gb / (_RANKS if sharded == "yes" else 1)
            items = {"parameters": gb, "gradients": gb, "states": moments}
            row = {"model": model, "sharded": sharded == "yes", "printed_gb": float(printed[sharded])}
            rows.append(row | items | {"gb": sum(items.values())})
    return of_source(pd.DataFrame(rows), f"{sources(published)} · theory: float32, 2 ranks")


def report_times(published: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model, kernels and way to send: by how many ms a step on two H100s can become shorter.

    `gained_ms` is what half the update's traffic through memory saves at the datasheet's rate, less the least that
    sending the parameters takes: gathered, or broadcast in turn. `printed_ms` is the report's.
    """
    rows = published.set_index("sharded")["step_seconds"]
    elements = {model: transformer(*SIZES[model][:3]).parameters for model in MODELS}
    parts = [
        {
            "model": model,
            "kernel": kernel,
            "sending": sending,
            "gained_ms": 1e3
            * limits.least_seconds_to_move(MOVED_BYTES["adamw", kernel] * count / _RANKS, H100.hbm_gb_per_s)
            - 1e3 * sent_s(count, _RANKS, H100.nvlink_gb_per_s, in_turn=sending == "in turn"),
            "printed_ms": 1e3 * float(rows["no"] - rows["yes"]),
        }
        for model, count in elements.items()
        for kernel in ("foreach", "fused")
        for sending in ("gathered", "in turn")
    ]
    return of_source(pd.DataFrame(parts), "theory: datasheet of an H100")
