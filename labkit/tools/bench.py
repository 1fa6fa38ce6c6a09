"""`make bench`: what launch() costs beside the bare torchrun command doing the same work, in turns, on this machine.

With `--conditions`: what measuring the conditions of a run costs, launches with and without it in turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import pandas as pd
from tqdm.auto import tqdm

from labkit import node
from labkit.engine.launch import launch
from labkit.engine.launches import worker_environment
from labkit.engine.run import Run, read_lines
from labkit.engine.sampler import CONDITIONS
from lessons import start

SWEEP_POINTS = 8  # so that a launch lasts for a few looks


def torchrun(plan: start.BertStep) -> Run:
    """Run the plan's worker as a student would without labkit: torchrun on the command line."""
    run = Run.create(plan, node.here())
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(plan.gpus),
        "--log-dir",
        str(run.elastic_folder),
        "-m",
        "labkit.engine.enter",
        str(run.folder),
    ]
    with run.launcher_log.open("wb") as log:
        subprocess.run(command, env=worker_environment(run, 1), stdout=log, stderr=log, check=True)
    return run


def measure(plan: start.LaunchCost) -> Run:
    """Run the plan's turns and give the Run: rows with pair, way, wall seconds, and seconds to the first row."""
    run, begun = Run.create(plan, node.here()), time.time()
    one = start.BertStep(gpus=plan.gpus)
    many = start.BertStep(gpus=plan.gpus, seeds=tuple(range(plan.sweep_points)))
    ways = {
        "torchrun": lambda: torchrun(one),
        "launch": lambda: launch(one, progress=False),
        "sweep": lambda: launch(many, progress=False),
    }
    for point in tqdm(plan.points(), desc="paired launches", leave=False, disable=None):
        called = time.time()
        done = ways[point.way]()
        events = [event for rank in range(plan.gpus) for event in read_lines(done.events_file(rank))]
        ready, measured = ([e["time"] - called for e in events if e["event"] == name] for name in ("ready", "done"))
        row = {"seconds": time.time() - called, "startup_seconds": max(ready), "first_row_seconds": min(measured)}
        run.append(0, {**vars(point), "iteration": point.pair, "warm_up": point.pair == 0, **row})
    seconds = time.time() - begun
    run.close("finished", launches=len(plan.points()), seconds=seconds, startup_seconds=0.0, measuring_seconds=seconds)
    return run


def conditions_cost(gpus: int, pairs: int) -> pd.DataFrame:
    """Return one row per pair of launches: seconds with and without conditions, and the looks' share of a core.

    The order within a pair alternates. The first pair starts the agent, and is left out.
    """
    rows = []
    for pair in tqdm(range(pairs + 1), desc="launches with and without conditions"):
        row: dict[str, float] = {}
        for measured in ("0", "1") if pair % 2 else ("1", "0"):
            os.environ[CONDITIONS] = measured
            called = time.monotonic()
            run = launch(start.BertStep(gpus=gpus, seeds=tuple(range(SWEEP_POINTS))), progress=False)
            row["with_s" if measured == "1" else "without_s"] = time.monotonic() - called
            if measured == "1":
                kept = run.conditions()
                row["looks"] = kept.sampling["samples"]
                row["percent_of_core"] = 100 * kept.sampling["cpu_seconds"] / (kept.seconds or float("nan"))
        rows.append(row)
    del os.environ[CONDITIONS]
    table = pd.DataFrame(rows[1:])
    return table.assign(extra_s=table["with_s"] - table["without_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=0, help="workers a launch; 0: all GPUs, or 4 processes on a CPU")
    parser.add_argument("--pairs", type=int, default=6, help="how many turns; the first is a warm-up")
    parser.add_argument("--keep", default="", help="also keep the run under data/recorded by this name")
    parser.add_argument("--conditions", action="store_true", help="only what measuring a run's conditions costs")
    options = parser.parse_args()
    gpus = options.gpus or len(node.here().gpus) or 4
    if options.conditions:
        table = conditions_cost(gpus, options.pairs)
        print(table.round(4).to_string(index=False))
        print(table.quantile([0.25, 0.5, 0.75]).round(4).to_string())
        return
    run = measure(start.LaunchCost(gpus=gpus, pairs=options.pairs))
    if options.keep:
        run.keep(options.keep)
    print(start.launch_costs(run).to_string(index=False))
    print(start.scorecard(run).to_csv(index=False))


if __name__ == "__main__":
    main()
