"""Made-up runs under the profiler: what a step went into, kernels, spans, and one rank's memory."""

from made import CPU, gpu_node, write_run
from traced_plan import Traced

from labkit.theory.allocations import fragments

# ms a step: compute, communication, hidden; kernels: name → family, calls, µs
STEPS = {"ddp": (310.0, 60.0, 45.0), "fsdp": (330.0, 120.0, 110.0), "alone": (300.0, 0.0, 0.0)}
KERNELS = {
    "ddp": {"gemm": ("matmul", 90, 2000.0), "all_reduce": ("nccl", 12, 500.0), "other": ("other", 40, 70.0)},
    "fsdp": {
        "gemm": ("matmul", 90, 2010.0),
        "all_gather": ("nccl", 24, 800.0),
        "copy": ("copy", 24, 90.0),
        "other": ("other", 50, 60.0),
    },
}


def account(compute: float, moved: float, hidden: float, idle: float = 12.0) -> dict:
    exposed = moved - hidden
    return {
        "entry": "profile",
        "window_ms": compute + exposed + idle,
        "compute_ms": compute,
        "communication_ms": moved,
        "hidden_ms": hidden,
        "exposed_ms": exposed,
        "idle_ms": idle,
        "kernels": 900.0,
        "communication_kernels": 12.0,
    }


def spans(rank: int) -> list[dict]:
    """Give an all-gather before each of six layers and a reduce-scatter at the end, on a clock far from zero."""
    zero, found = 1.7e15, []
    for layer in range(6):
        at = zero + 100.0 * rank + 9000 * layer
        found.append(("communicate", "all_gather", at, at + 4000))
        found += [("compute", "", at + 3000, at + 8500), ("copy", "", at + 8500, at + 8900)]
    found.append(("communicate", "reduce_scatter", zero + 55000, zero + 58000))
    names = ("span", "collective", "start_us", "end_us")
    return [dict(zip(names, values, strict=True)) | {"lane": f"rank {rank}"} for values in found]


def memory() -> list[dict]:
    """Give two moments of a rank's memory."""
    moments = [{"t_ms": 0.0, "allocated_mib": 900.0}, {"t_ms": 1.0, "allocated_mib": 3900.0}]
    return [{"entry": "memory timeline"} | moment for moment in moments]


def pieces(count: int = 230) -> list[dict]:
    made = []
    for at in range(count):
        total = 2**20 * (2000 // (at + 1) + 2)
        used = total * (3 + at % 5) // 8
        made.append(
            {"total_size": total, "allocated_size": used, "blocks": [{"state": "inactive", "size": total - used}]}
        )
    return [{"entry": "segment"} | row for row in fragments(made)]


def profiled(folder, strategies=("ddp", "fsdp"), ranks=(2, 4), *, device="cuda", scale=1.0):
    """Write a run whose ranks differ: rank r exposes r % more communication than rank 0."""
    rows, size = [], "full" if device == "cuda" else "small"
    for point, (strategy, count) in enumerate((s, r) for r in ranks for s in strategies):
        knobs = {"point": point, "seed": 0, "strategy": strategy, "ranks": count, "micro_batch": 8}
        for rank in range(count):
            compute, moved, hidden = (scale * part for part in STEPS[strategy])
            found = [account(compute, hidden + (moved - hidden) * (1 + rank / 100), hidden)]
            for name, (family, calls, us) in KERNELS.get(strategy, {}).items():
                us = us + 10 * rank
                found.append({"entry": "operator", "operator": name, "family": family, "calls": calls, "total_us": us})
            found += spans(rank)
            found += memory() + pieces() if device == "cuda" else []
            rows += [(rank, knobs | row) for row in found]
    plan = Traced(device=device, gpus=max(ranks), size=size, strategies=strategies)
    return write_run(folder, plan, gpu_node(max(ranks)) if device == "cuda" else CPU, rows)
