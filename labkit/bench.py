"""`make bench`: what launch() costs beside the bare torchrun command doing the same work, in turns, on this machine."""

from __future__ import annotations

import argparse
import time

from tqdm.auto import tqdm

from labkit import node
from labkit.engine.launch import launch, start
from labkit.engine.run import Run
from labkit.labs import start as start_lab


def measure(plan: start_lab.LaunchCost) -> Run:
    """Run the plan's pairs and give the Run: rows with pair, way (torchrun, launch, sweep) and seconds of wall time."""
    here, run, begun = node.here(), Run.create(plan, node.here()), time.time()
    one = start_lab.Hello(gpus=plan.gpus, sums=plan.sums)
    many = start_lab.Hello(gpus=plan.gpus, sums=plan.sums, seeds=tuple(range(plan.sweep_points)))
    ways = {
        "torchrun": lambda: start(Run.create(one, here), 0, 1).wait(),
        "launch": lambda: launch(one, progress=False),
        "sweep": lambda: launch(many, progress=False),
    }
    for point in tqdm(plan.points(), desc="paired launches"):
        clock = time.perf_counter()
        ways[point.way]()
        seconds = time.perf_counter() - clock
        run.append(0, {**vars(point), "iteration": point.pair, "warm_up": point.pair == 0, "seconds": seconds})
    seconds = time.time() - begun
    run.close("finished", launches=len(plan.points()), seconds=seconds, startup_seconds=0.0, measuring_seconds=seconds)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=0, help="workers a launch; 0: all GPUs, or 2 on a CPU")
    parser.add_argument("--pairs", type=int, default=7, help="how many pairs; the first is a warm-up")
    parser.add_argument("--keep", default="", help="also keep the run under data/recorded by this name")
    options = parser.parse_args()
    run = measure(start_lab.LaunchCost(gpus=options.gpus, pairs=options.pairs))
    if options.keep:
        run.keep(options.keep)
    print(start_lab.launch_costs(run).to_string(index=False))
    print(start_lab.launch_scorecard(run).to_csv(index=False))


if __name__ == "__main__":
    main()
