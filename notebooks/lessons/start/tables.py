"""Rows of lab 00 → tables: who is there, what start-up consists of, what a launch costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.node.limits import least_seconds_to_move, spec
from labkit.provenance import of_run, of_source

if TYPE_CHECKING:
    from labkit.engine.run import Run

FIRST_SUM = "the first sum"


def ranks(run: Run) -> pd.DataFrame:
    """Return one row per rank: rank, gpu, device, pid, cores, free_gib (GPU memory), and whether its sum was right."""
    rows = run.rows
    table = rows.groupby("rank", as_index=False).first()
    right = rows.groupby("rank")["sum_of_ranks"].agg(lambda seen: (seen == sum(range(run.plan.gpus))).all())
    columns = [c for c in ("rank", "gpu", "device", "pid", "cores", "free_gib") if c in table]
    return of_run(table[columns].assign(sum_is_right=right.to_numpy()), run)


def startup(run: Run) -> pd.DataFrame:
    """Return the parts of every rank's start-up, the first sum last: rank, part, start_s, end_s, seconds."""
    rows, spans = (table[table["point"] == 0] for table in (run.rows, run.spans))  # later points start nothing
    spans = spans[spans["lane"] == "start-up"]
    table = pd.DataFrame(
        {
            "rank": spans["rank"],
            "part": spans["span"],
            "start_s": spans["start_us"] / 1e6,
            "end_s": spans["end_us"] / 1e6,
        }
    )
    first = rows[rows["iteration"] == 0].set_index("rank")["seconds"]
    ends = table.groupby("rank")["end_s"].max()
    sums = pd.DataFrame(
        {
            "rank": first.index,
            "part": FIRST_SUM,
            "start_s": ends.to_numpy(),
            "end_s": (ends + first).to_numpy(),
        }
    )
    table = pd.concat([table, sums], ignore_index=True)
    table["seconds"] = table["end_s"] - table["start_s"]
    return of_run(table, run)


def sums(run: Run) -> pd.DataFrame:
    """Return each sum over all ranks in order: iteration (through all points), seconds (of the slowest rank)."""
    slowest = run.rows.groupby(["point", "iteration"])["seconds"].max()
    table = pd.DataFrame({"iteration": range(len(slowest)), "seconds": slowest.to_numpy()})
    return of_run(table, run, on_gpus=run.plan.device == "cuda")


def best_times(node, gpu_name: str | None = None) -> pd.DataFrame:
    """Return what this node can do at best: what, rate, unit, and the least time for one gigabyte or one teraflop.

    Empty where the datasheet of the GPU is not known: no limit is known, and none is guessed.
    """
    limits = spec(gpu_name or (node.gpus[0].name if node.has_gpus else None))
    if limits is None:
        return pd.DataFrame(columns=["what", "rate", "unit", "least_ms"])
    moves = [
        ("read 1 GB: GPU memory", limits.hbm_gb_per_s),
        ("move 1 GB: GPU → GPU, one way", limits.nvlink_gb_per_s),
        ("move 1 GB: host → GPU", limits.pcie_gb_per_s),
    ]
    rows = [(what, rate, "GB/s", 1e3 * least_seconds_to_move(1e9, rate)) for what, rate in moves if rate]
    for name, precision in (("float32", "fp32"), ("TF32", "tf32"), ("bfloat16", "bf16")):
        if rate := limits.tflops(precision):
            rows.append((f"compute 1 TFLOP: {name}", rate, "TFLOP/s", 1e3 / rate))
    return of_source(pd.DataFrame(rows, columns=["what", "rate", "unit", "least_ms"]), f"datasheet of {limits.name}")


def launch_costs(run: Run) -> pd.DataFrame:
    """Return median seconds, spread, count and ratio to torchrun, per way to start: first, torchrun, launch, sweep.

    `startup_seconds` is the part before the last rank was ready, `first_row_seconds` the time to the first measured
    point. Ratios are medians over pairs, each measured back to back. The fact `first_seconds` is what the first launch
    of a notebook took, which starts the agent.
    """
    table = run.medians(["way"], "seconds").drop(columns="status")
    for value in ("startup_seconds", "first_row_seconds"):
        table[value] = table["way"].map(pairs(run, value).median())
    ratios = pairs(run).div(pairs(run)["torchrun"], axis=0)
    table["over_torchrun"] = table["way"].map(ratios.median())
    first = run.rows[run.rows["warm_up"].astype(bool) & (run.rows["way"] == "launch")]["seconds"].max()
    return of_run(table, run, points=run.plan.sweep_points, first_seconds=first)


def pairs(run: Run, value: str = "seconds") -> pd.DataFrame:
    """Return one row per turn and one column per way to start: `value`, without the turn that is a warm-up."""
    rows = run.rows[~run.rows["warm_up"].astype(bool)]
    return rows.pivot_table(index="pair", columns="way", values=value)
