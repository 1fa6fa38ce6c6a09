"""`make bench`: what launch() costs beside the bare torchrun command doing the same work, in turns, on this machine."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from typing import Any

from tqdm.auto import tqdm

from labkit import node
from labkit.engine.json_lines import read_lines
from labkit.engine.launches import worker_environment
from labkit.engine.plan import Plan
from labkit.engine.run import Run
from labkit.engine.session import AgentSession
from labkit.launching import launch
from labkit.tables.goals import scorecard_of


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
    shared: set[int] = set()  # GPUs that other programs held
    ways = {
        "first": lambda: launch(single, progress=False),
        "torchrun": lambda: torchrun(single),
        "launch": lambda: launch(single, progress=False),
        "sweep": lambda: launch(many, progress=False),
    }
    for point in tqdm(plan.points(), desc="paired launches", leave=False, disable=None):
        if point.way == "first":  # a notebook's set-up cell has run, and its page is read
            AgentSession.renew(single.worker)
            time.sleep(plan.reading_s)
        called = time.time()
        done = ways[point.way]()
        shared.update(done.status.get("contaminated") or ())
        events = [event for rank in range(plan.gpus) for event in read_lines(done.events_file(rank))]
        ready, measured = ([e["time"] - called for e in events if e["event"] == name] for name in ("ready", "done"))
        row = {"seconds": time.time() - called, "startup_seconds": max(ready), "first_row_seconds": min(measured)}
        run.append(0, {**vars(point), "iteration": point.pair, "warm_up": point.pair == 0, **row})
    seconds = time.time() - begun
    times = {"seconds": seconds, "startup_seconds": 0.0, "measuring_seconds": seconds}
    run.close("finished", launches=len(plan.points()), contaminated=sorted(shared), **times)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=0, help="workers a launch; 0: all GPUs, or 4 processes on a CPU")
    parser.add_argument("--lesson", default="start", help="whose plan LaunchCost is measured")
    parser.add_argument("--pairs", type=int, default=6, help="how many turns; the first is a warm-up")
    parser.add_argument("--keep", default="", help="also keep the run under data/recorded by this name")
    options = parser.parse_args()
    lesson = importlib.import_module(f"lessons.{options.lesson}")
    gpus = options.gpus or len(node.here().gpus) or 4
    run = measure(lesson.LaunchCost(gpus=gpus, pairs=options.pairs))
    if options.keep:
        run.keep(options.keep)
    print(lesson.launch_costs(run).to_string(index=False))
    print(scorecard_of(run).to_csv(index=False))


if __name__ == "__main__":
    main()
