"""Rows of lab 00 → tables: who is there, what start-up consists of, what a launch costs."""

from __future__ import annotations

import pandas as pd

from labkit.node.limits import least_seconds_to_move, spec


def ranks(run) -> pd.DataFrame:
    """Give one row a rank: rank, gpu, device, pid, cores, free_gib (GPU memory), and whether its sum was right."""
    rows = run.rows
    table = rows.groupby("rank", as_index=False).first()
    right = rows.groupby("rank")["sum_of_ranks"].agg(lambda seen: (seen == sum(range(run.plan.gpus))).all())
    columns = [c for c in ("rank", "gpu", "device", "pid", "cores", "free_gib") if c in table]
    table = table[columns].assign(sum_is_right=right.to_numpy())
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table


def startup(run) -> pd.DataFrame:
    """Give the parts of every rank's start-up, the first sum last: rank, part, start_s, end_s, seconds."""
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
            "part": "the first sum",
            "start_s": ends.to_numpy(),
            "end_s": (ends + first).to_numpy(),
        }
    )
    table = pd.concat([table, sums], ignore_index=True)
    table["seconds"] = table["end_s"] - table["start_s"]
    table.attrs.update(source=run.source, small=run.plan.size == "small")
    return table


def sums(run) -> pd.DataFrame:
    """Give each sum over all ranks in order: iteration (through all points), seconds (of the slowest rank)."""
    slowest = run.rows.groupby(["point", "iteration"])["seconds"].max()
    table = pd.DataFrame({"iteration": range(len(slowest)), "seconds": slowest.to_numpy()})
    table.attrs.update(source=run.source, small=run.plan.size == "small", gpus=run.plan.gpus)
    return table


def best_times(node, gpu_name: str | None = None) -> pd.DataFrame:
    """Give what this node can do at best: what, rate, unit, and the least time for one gigabyte or one teraflop.

    Empty where the datasheet of the GPU is not known: no limit is known, and none is guessed.
    """
    known = spec(gpu_name or (node.gpus[0].name if node.has_gpus else None))
    if known is None:
        return pd.DataFrame(columns=["what", "rate", "unit", "least_ms"])
    moves = [
        ("GPU memory", known.hbm_gb_per_s),
        ("GPU → GPU", known.nvlink_gb_per_s),
        ("host → GPU", known.pcie_gb_per_s),
    ]
    rows = [
        (
            f"{'read' if what == 'GPU memory' else 'move'} 1 GB: {what}",
            rate,
            "GB/s",
            1e3 * least_seconds_to_move(1e9, rate),
        )
        for what, rate in moves
        if rate
    ]
    for name, precision in (("float32", "fp32"), ("TF32", "tf32"), ("bfloat16", "bf16")):
        if rate := known.tflops(precision):
            rows.append((f"compute 1 TFLOP: {name}", rate, "TFLOP/s", 1e3 / rate))
    table = pd.DataFrame(rows, columns=["what", "rate", "unit", "least_ms"])
    table.attrs["source"] = f"datasheet of {known.name}"
    return table


def launch_costs(run) -> pd.DataFrame:
    """Give, a way to start (torchrun, launch, sweep): median seconds, spread, count, and its ratio to bare torchrun.

    `startup_seconds` is the part before the last rank was ready, `first_row_seconds` the time to the first measured
    point. Ratios are medians over pairs, each measured back to back, with their own spread. attrs: `first_seconds`,
    what the kernel's first launch took, which starts the agent.
    """
    table = run.medians(["way"], "seconds").drop(columns="status")
    for value in ("startup_seconds", "first_row_seconds"):
        table[value] = table["way"].map(_pairs(run, value).median())
    ratios = _pairs(run).div(_pairs(run)["torchrun"], axis=0)
    table["over_torchrun"] = table["way"].map(ratios.median())
    table["spread_over_torchrun"] = table["way"].map((ratios.quantile(0.75) - ratios.quantile(0.25)) / 2)
    first = run.rows[run.rows["warm_up"].astype(bool) & (run.rows["way"] == "launch")]["seconds"].max()
    table.attrs.update(source=run.source, points=run.plan.sweep_points, first_seconds=first)
    return table


def _pairs(run, value: str = "seconds") -> pd.DataFrame:
    rows = run.rows[~run.rows["warm_up"].astype(bool)]
    return rows.pivot_table(index="pair", columns="way", values=value)


def launch_scorecard(run) -> pd.DataFrame:
    """Give the launch targets as a LaunchCost run reached them: lab, target, measured, goal, unit, met.

    Ratios are medians over pairs, each measured back to back in one kernel whose agent was warm.
    """

    def ratio(value: str, way: str, over: str, times: int = 1) -> float:
        wide = _pairs(run, value)
        return float((wide[way] / (times * wide[over])).median())

    points = run.plan.sweep_points
    sweep = ratio("startup_seconds", "sweep", "launch", points)
    targets = [
        ("launch over the bare torchrun command", ratio("seconds", "launch", "torchrun"), 1.10),
        ("a later launch's first row over torchrun's", ratio("first_row_seconds", "launch", "torchrun"), 0.25),
        (f"a {points}-point sweep's start-up over {points} launches'", sweep, 0.10),
    ]
    rows = [(target, measured, f"≤ {goal:.2f}", "×", measured <= goal) for target, measured, goal in targets]
    card = pd.DataFrame(rows, columns=["target", "measured", "goal", "unit", "met"])
    card["measured"] = card["measured"].round(3)
    card.insert(0, "lab", "start")
    return card


def scorecard(run) -> pd.DataFrame:
    """Give the targets that a run of this lab measures: the launch targets of a LaunchCost, none of a Hello."""
    return launch_scorecard(run) if run.plan.name == "launchcost" else pd.DataFrame()
