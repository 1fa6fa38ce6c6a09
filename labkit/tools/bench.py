"""`make bench`: what launch() costs beside the bare torchrun command doing the same work, in turns, on this machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from tqdm.auto import tqdm

from labkit import node
from labkit.engine.launch import launch, worker_environment
from labkit.engine.run import Run, read_lines
from labkit.labs import start


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
    for point in tqdm(plan.points(), desc="paired launches"):
        called = time.time()
        done = ways[point.way]()
        events = [event for rank in range(plan.gpus) for event in read_lines(done.events_file(rank))]
        ready, measured = ([e["time"] - called for e in events if e["event"] == name] for name in ("ready", "done"))
        row = {"seconds": time.time() - called, "startup_seconds": max(ready), "first_row_seconds": min(measured)}
        run.append(0, {**vars(point), "iteration": point.pair, "warm_up": point.pair == 0, **row})
    seconds = time.time() - begun
    run.close("finished", launches=len(plan.points()), seconds=seconds, startup_seconds=0.0, measuring_seconds=seconds)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=0, help="workers a launch; 0: all GPUs, or 4 processes on a CPU")
    parser.add_argument("--pairs", type=int, default=6, help="how many turns; the first is a warm-up")
    parser.add_argument("--keep", default="", help="also keep the run under data/recorded by this name")
    options = parser.parse_args()
    gpus = options.gpus or len(node.here().gpus) or 4
    run = measure(start.LaunchCost(gpus=gpus, pairs=options.pairs))
    if options.keep:
        run.keep(options.keep)
    print(start.launch_costs(run).to_string(index=False))
    print(start.scorecard(run).to_csv(index=False))


if __name__ == "__main__":
    main()
