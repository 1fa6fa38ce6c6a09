"""`make bench`: what launch() costs beside the bare torchrun command doing the same work, in turns, on this machine.

With `--conditions`: what measuring the conditions of a run costs, launches with and without it in turns.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from labkit import node
from labkit.engine.json_lines import read_lines
from labkit.engine.launches import worker_environment
from labkit.engine.plan import Plan
from labkit.engine.run import Run
from labkit.engine.sampler import CONDITIONS
from labkit.engine.session import Session
from labkit.launching import launch
from labkit.tables.goals import scorecard_of

SWEEP_POINTS = 8  # so that a launch lasts for a few looks


def torchrun(plan: Plan) -> Run:
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


def measure(plan: Any) -> Run:
    """Run the turns of a plan of launches, such as lesson 00's LaunchCost, and return the Run.

    Its rows hold pair, way, wall seconds, seconds until the workers were ready, and seconds to the first row.
    """
    run, begun = Run.create(plan, node.here()), time.time()
    single, many = plan.one_point(), plan.sweep()
    ways = {
        "first": lambda: launch(single, progress=False),
        "torchrun": lambda: torchrun(single),
        "launch": lambda: launch(single, progress=False),
        "sweep": lambda: launch(many, progress=False),
    }
    for point in tqdm(plan.points(), desc="paired launches", leave=False, disable=None):
        if point.way == "first":  # a notebook's set-up cell has run, and its page is read
            Session.renew(single.worker)
            time.sleep(plan.reading_s)
        called = time.time()
        done = ways[point.way]()
        events = [event for rank in range(plan.gpus) for event in read_lines(done.events_file(rank))]
        ready, measured = ([e["time"] - called for e in events if e["event"] == name] for name in ("ready", "done"))
        row = {"seconds": time.time() - called, "startup_seconds": max(ready), "first_row_seconds": min(measured)}
        run.append(0, {**vars(point), "iteration": point.pair, "warm_up": point.pair == 0, **row})
    seconds = time.time() - begun
    run.close("finished", launches=len(plan.points()), seconds=seconds, startup_seconds=0.0, measuring_seconds=seconds)
    return run


def conditions_cost(plan: Plan, pairs: int) -> pd.DataFrame:
    """Return one row per pair of launches: seconds with and without conditions, and the looks' share of a core.

    The order within a pair alternates. The first pair starts the agent, and is left out.
    """
    rows = []
    for pair in tqdm(range(pairs + 1), desc="launches with and without conditions"):
        row: dict[str, float] = {}
        for measured in ("0", "1") if pair % 2 else ("1", "0"):
            os.environ[CONDITIONS] = measured
            called = time.monotonic()
            run = launch(plan, progress=False)
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
    parser.add_argument("--lesson", default="start", help="whose plan LaunchCost is measured")
    parser.add_argument("--pairs", type=int, default=6, help="how many turns; the first is a warm-up")
    parser.add_argument("--keep", default="", help="also keep the run under data/recorded by this name")
    parser.add_argument("--conditions", action="store_true", help="only what measuring a run's conditions costs")
    options = parser.parse_args()
    lesson = importlib.import_module(f"lessons.{options.lesson}")
    gpus = options.gpus or len(node.here().gpus) or 4
    if options.conditions:
        table = conditions_cost(lesson.LaunchCost(gpus=gpus, sweep_points=SWEEP_POINTS).sweep(), options.pairs)
        print(table.round(4).to_string(index=False))
        print(table.quantile([0.25, 0.5, 0.75]).round(4).to_string())
        return
    run = measure(lesson.LaunchCost(gpus=gpus, pairs=options.pairs))
    if options.keep:
        run.keep(options.keep)
    print(lesson.launch_costs(run).to_string(index=False))
    print(scorecard_of(run).to_csv(index=False))


if __name__ == "__main__":
    main()
