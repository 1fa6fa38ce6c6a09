"""Makes runs of lab 11 by hand: memory around an update, times of steps."""

from made import CPU, gpu_node, write_run

from labkit.theory.sizes import MIB
from labkit.theory.transformer import activations
from lessons.optimizer_sharding.plan import Memory, Steps
from lessons.optimizer_sharding.tables import sizes
from lessons.optimizer_sharding.theory import MOMENTS, ledger

# step, update, local: ms of each way
TIMES = {
    "unsharded": (140.0, 36.0, 36.0),
    "zero_redundancy": (146.0, 41.0, 18.5),
    "zero_buckets": (145.0, 40.0, 18.5),
    "sharded": (125.0, 20.0, 18.4),
}


def memory_run(folder, *, device="cuda", size="full", unexplained=0.02, uneven=1.0, more_sent=8, **knobs):
    """Write a run whose peaks are `unexplained` more than the ledger; rank 0 of ours has `uneven` times its states.

    An update sends `more_sent` bytes besides the parameters.
    """
    plan = Memory(device=device, gpus=2, size=size, **knobs)
    kept = activations(plan.samples * plan.sequence, plan.hidden, plan.inner, plan.layers, plan.heads, plan.vocabulary)
    rows = []
    for point in plan.points():
        for step, moment in [(0, "built"), *((step, moment) for step in (0, 1) for moment in MOMENTS[1:])]:
            more = {"kernel": point.kernel, "bucket_bytes": MIB * point.bucket_mib}
            items = ledger(sizes(plan), point.way, 2, moment, step, kept, **more)
            counted = {item: items[item] / MIB for item in ("parameters", "gradients", "states")}
            counted["gradients"] = counted["parameters"] * (moment != "built")
            for rank in range(2):
                factor = uneven if point.way == "sharded" and rank == 0 else 1.0
                held = counted | {"states": counted["states"] * factor}
                row = {f"{item}_mib": value for item, value in held.items()}
                if device == "cuda":
                    peak = sum(items.values()) / MIB / (1 - unexplained * (rank == 0))
                    row |= {"allocated_mib": sum(held.values()), "peak_mib": peak}
                rows.append((rank, vars(point) | {"entry": "memory", "moment": moment, "step": step} | row))
        if point.way != "unsharded":
            moved = {"entry": "traffic", "collective": "all-gather", "calls": 16}
            moved["sent_bytes"] = 4 * sum(sizes(plan)) + more_sent
            rows += [(rank, vars(point) | moved) for rank in range(2)]
    return write_run(folder, plan, gpu_node(2) if device == "cuda" else CPU, rows)


def steps_run(folder, times=TIMES, *, device="cuda", size="full", spread=0.02, **knobs):
    """Write a run of these times: each iteration `spread` shorter, as given, and longer, after a warm-up."""
    plan = Steps(device=device, gpus=2, size=size, **knobs)
    rows = []
    for point in plan.points():
        faster = 0.5 if point.kernel == "fused" else 1.0
        for part, ms in zip(("step", "update", "local"), times[point.way], strict=True):
            for iteration, factor in enumerate((9, 1 - spread, 1, 1 + spread)):
                row = {"part": part, "iteration": iteration, "warm_up": iteration == 0, "ms": ms * factor}
                row["ms"] *= faster if part != "step" else 1
                rows += [(rank, vars(point) | row) for rank in range(2)]
    return write_run(folder, plan, gpu_node(2) if device == "cuda" else CPU, rows)
