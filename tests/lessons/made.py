"""Makes nodes, run folders and tables by hand, so that the labs' host side is tested without a launch."""

import json
from dataclasses import replace

import pandas as pd

from labkit.engine.json_lines import row_line
from labkit.engine.run import Run
from labkit.node import Gpu, Node
from lessons.broadcast.plan import WHOLE, Sweep
from lessons.start.plan import WAYS, Hello, LaunchCost
from lessons.topology.plan import Copies

CPU = Node((), "AMD EPYC 7B13", 2, ((0, "0-1"),), 8.0, None, None, {"python": "3.11.9"}, "", "2026-11-21")

# 4 GiB to four H200s, in seconds: those of one chunk as measured, the rest made to fit.
COUNTS = (4, 8, 16, 32, 64, 128)
H200_SECONDS = {
    ("direct", "pageable", 1): 1.66,
    ("direct", "pinned", 1): 0.083,
    ("staged", "pageable", 1): 0.445,
    ("staged", "pinned", 1): 0.110,
    ("nccl", "pageable", 1): 0.428,
    ("nccl", "pinned", 1): 0.0915,
}
for _chunks, _links, _pipelined, _scatter in zip(
    COUNTS,
    (0.0213, 0.0214, 0.0214, 0.0215, 0.0217, 0.0220),
    (0.0865, 0.082, 0.080, 0.079, 0.0788, 0.079),
    (0.0240, 0.0226, 0.0217, 0.0218, 0.0221, 0.0229),
    strict=True,
):
    H200_SECONDS |= {
        ("links", "pageable", _chunks): 0.415,
        ("links", "pinned", _chunks): _links,
        ("pipelined", "pageable", _chunks): 0.42 + 0.04 / _chunks,
        ("pipelined", "pinned", _chunks): _pipelined,
        ("scatter_all_gather", "pageable", _chunks): 0.418 + 0.01 / _chunks,
        ("scatter_all_gather", "pinned", _chunks): _scatter,
    }
CPU_SECONDS = {
    ("links", "pageable", 4): 0.0048,
    ("links", "pageable", 16): 0.0051,
    ("direct", "pageable", 1): 0.021,
    ("staged", "pageable", 1): 0.026,
    ("nccl", "pageable", 1): 0.061,
    ("pipelined", "pageable", 4): 0.019,
    ("pipelined", "pageable", 16): 0.0205,
    ("scatter_all_gather", "pageable", 4): 0.0182,
    ("scatter_all_gather", "pageable", 16): 0.0221,
}


def gpu_node(gpus: int = 4, name: str = "NVIDIA H200") -> Node:
    """Give a node of `gpus` GPUs of one kind."""
    return replace(CPU, gpus=tuple(Gpu(index, name, memory_mib=143771, nvlinks=18) for index in range(gpus)), cores=96)


def write_run(folder, plan, node, rows=(), status: dict | None = None) -> Run:
    """Write a run's folder; a row is (rank, what it holds)."""
    folder.mkdir(parents=True)
    run = Run(folder)
    run.plan_file.write_text(plan.to_json())
    run.node_file.write_text(node.to_json())
    lines: dict[int, list[str]] = {}
    for rank, row in rows:
        lines.setdefault(rank, []).append(row_line(rank, run.gpu(rank), {"point": row["point"]}, row))
    for rank, written in lines.items():
        run.rows_file(rank).write_text("".join(written))
    ended = {"seconds": 12.0, "startup_seconds": 4.0, "measuring_seconds": 8.0, "launches": 1}
    run.status_file.write_text(json.dumps({"state": "finished", "date": "2026-11-21"} | ended | (status or {})))
    return run


def sweep_plan(seconds: dict, *, device="cuda", gpus=4, mib=4096, size="full") -> Sweep:
    """Give the broadcast plan whose settings are the keys of `seconds`."""
    methods, memories = (tuple(dict.fromkeys(key[i] for key in seconds)) for i in (0, 1))
    chunks = tuple(sorted({chunks for method, _, chunks in seconds if method not in WHOLE})) or (1,)
    return Sweep(
        device=device, gpus=gpus, mib=mib, size=size, methods=methods, memories=memories, chunks=chunks, repeats=3
    )


def broadcast_run(
    folder, seconds: dict = H200_SECONDS, node: Node | None = None, *, status: dict | None = None, **plan
) -> Run:
    """Write a broadcast sweep: each setting thrice, 2 % apart, after a warm-up ten times as long; then its spans.

    `status` names the settings that failed, and how.
    """
    made = sweep_plan(seconds, **plan)
    rows = []
    for point, ((method, memory, chunks), value) in enumerate(seconds.items()):
        knobs = {"point": point, "seed": 0, "method": method, "memory": memory, "chunks": chunks}
        said = (status or {}).get((method, memory, chunks), "ok")
        for iteration, factor in enumerate((10, 0.98, 1.0, 1.02)):
            warm_up = iteration == 0
            rows.append(
                (0, knobs | {"iteration": iteration, "warm_up": warm_up, "seconds": value * factor, "status": said})
            )
        rows += [(0, knobs | {"span": "copy"} | span) for span in copies(method, chunks, 1e6 * value, made.gpus)]
    return write_run(folder, made, node or (gpu_node(made.gpus) if made.device == "cuda" else CPU), rows)


def small_broadcast(folder) -> Run:
    """Write the small sweep of a machine without GPUs."""
    return broadcast_run(folder, CPU_SECONDS, device="cpu", mib=32, size="small")


def copies(method: str, chunks: int, length_us: float, gpus: int) -> list[dict]:
    """Give a method's spans: every host lane busy in turn, each forward a chunk behind."""
    pulls = range(gpus) if method in ("links", "direct", "scatter_all_gather") else [0]
    step = length_us / (chunks + 1)
    spans = []
    for gpu in pulls:
        for piece in range(chunks):
            spans.append({"lane": f"host → {gpu}", "start_us": piece * step, "end_us": (piece + 0.95) * step})
            if method in ("links", "direct"):
                continue
            for other in (g for g in range(gpus) if g != gpu):
                spans.append(
                    {"lane": f"{gpu} → {other}", "start_us": (piece + 1) * step, "end_us": (piece + 1.4) * step}
                )
    return spans


def copies_run(
    folder,
    *,
    gpus=4,
    device="cuda",
    node=None,
    memories=("pageable", "pinned"),
    numa=(0,),
    size="full",
    pair=396.0,
    own=1900.0,
    alone=None,
    together=None,
    far=1.0,
    odd=None,
) -> Run:
    """Write a run of lab 01 with the given rates in GB/s; `odd` overrides pairs, `far` scales nodes but the own."""
    alone = alone or {"pageable": 10.4, "pinned": 55.0}
    together = together or {"pageable": 9.1, "pinned": 48.3}
    plan = Copies(device=device, gpus=gpus, memories=memories, numa=numa, size=size, mib=64, repeats=3)
    rows = []
    for point in plan.points():
        knobs = dict(vars(point))
        if point.copy == "gpu_to_gpu":
            rate = (odd or {}).get((point.source, point.target), own if point.source == point.target else pair)
            rows += [(point.source, row) for row in _repeats(knobs, rate)]
            continue
        for rank in range(gpus):
            near = numa[rank * len(numa) // gpus]
            rate = (together if point.together else alone)[point.memory] * (1 if point.numa == near else far)
            rows += [(rank, row) for row in _repeats(knobs, rate)]
    return write_run(folder, plan, node or (gpu_node(gpus) if device == "cuda" else CPU), rows)


def _repeats(knobs: dict, rate: float) -> list[dict]:
    factors = enumerate((0.2, 0.99, 1.0, 1.01))
    return [
        knobs | {"iteration": i, "warm_up": i == 0, "seconds": 1 / rate / f, "gb_per_s": rate * f} for i, f in factors
    ]


def hello_run(folder, *, gpus=4, device="cuda", first=0.9, later=0.0004, sums: dict | None = None) -> Run:
    """Write a first launch: who is where, the parts of the start-up, and sums of which the first is slow."""
    plan = Hello(device=device, gpus=gpus, sums=20, size="full" if device == "cuda" else "small")
    right, name = sum(range(gpus)), "NVIDIA H200" if device == "cuda" else "CPU process"
    rows = []
    for rank in range(gpus):
        begun = 0.0
        for part, lasts in (
            ("torchrun starts the worker", 1.9),
            ("import torch", 2.1 + 0.1 * rank),
            ("join the group", 0.6),
        ):
            at = {"start_us": 1e6 * begun, "end_us": 1e6 * (begun + lasts)}
            rows.append((rank, {"point": 0, "seed": 0, "lane": "start-up", "span": part} | at))
            begun += lasts
        for iteration in range(20):
            seconds = first if iteration == 0 else later * (1 + 0.1 * (iteration % 3))
            said = (sums or {}).get(rank, right)
            who = {"pid": 4000 + rank, "device": name, "cores": 96, "sum_of_ranks": said}
            free = 138.6 if device == "cuda" else None
            rows.append(
                (rank, {"point": 0, "seed": 0, "iteration": iteration, "seconds": seconds, "free_gib": free} | who)
            )
    return write_run(folder, plan, gpu_node(gpus) if device == "cuda" else CPU, rows)


def cost_run(
    folder,
    *,
    torchrun=7.0,
    launch=7.2,
    sweep=8.4,
    first_row=1.5,
    sweep_startup=1.2,
    first_startup=1.0,
    pairs=5,
    ways=WAYS,
) -> Run:
    """Write what launching cost, pair by pair, the first a warm-up; the machine slows down, alike for all of a pair."""
    plan = LaunchCost(device="cuda", gpus=2, pairs=pairs, size="full", ways=ways)
    rows = []
    for pair in range(pairs):
        for way, seconds in zip(WAYS, (7.4, torchrun, launch, sweep), strict=True):
            if way not in ways:
                continue
            row = {"point": len(rows), "seed": 0, "pair": pair, "way": way, "iteration": pair, "warm_up": pair == 0}
            slow = 9 if pair == 0 else 1 + 0.1 * pair
            row |= {"seconds": slow * seconds, "first_row_seconds": slow * (6.0 if way == "torchrun" else first_row)}
            startup = {"first": first_startup, "torchrun": 5.0, "launch": 1.0, "sweep": sweep_startup}[way]
            rows.append((0, row | {"startup_seconds": slow * startup}))
    return write_run(folder, plan, gpu_node(2), rows)


def attributed(rows: list[dict], **attrs) -> pd.DataFrame:
    """Give a table with its attrs."""
    table = pd.DataFrame(rows)
    table.attrs.update(attrs)
    return table


def table(*rows, columns, **attrs) -> pd.DataFrame:
    """Give a table of tuples as a full-size run would give it."""
    made = pd.DataFrame(rows, columns=columns)
    made.attrs.update({"small": False, "on_cpu": False, "source": "made"} | attrs)
    made.attrs.setdefault("recorded", made.attrs["source"].startswith("recorded"))
    return made


def said(markdown, parts, *unsaid) -> None:
    """Assert that each of `parts` is said, and none of `unsaid`; each of these is a string or several."""
    for part in _each(parts):
        assert part in markdown.data, f"{part!r} is not in {markdown.data!r}"
    for part in (one for many in unsaid for one in _each(many)):
        assert part not in markdown.data, f"{part!r} is in {markdown.data!r}"


def _each(parts) -> tuple[str, ...]:
    return (parts,) if isinstance(parts, str) else tuple(parts)
