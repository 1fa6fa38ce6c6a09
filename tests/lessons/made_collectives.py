"""Makes runs of lab 09 by hand: times that follow a line exactly, or bend away from it where they are told to."""

from made import CPU, gpu_node, write_run

from labkit.engine.run import Run
from labkit.theory.sizes import GB, KIB
from lessons.collectives.plan import NcclTests, Ring, Sweep
from lessons.collectives.theory import bus_factor, bus_gb_per_s, sent_elements, steps_of

LINES = {"nccl": (5e-6, 380.0), "gloo": (60e-6, 2.0)}  # a hop in collective_seconds, the bus bandwidth in GB/s
CLOCKED = {"in flight": 1.0, "one call": 3.0}  # times a call's latency
SIZES_KIB = (1, 16, 256, 4096, 65536, 1048576)
SMALL_KIB = (1, 16, 256, 1024)


def hops(collective: str, ranks: int) -> int:
    """Give how many messages follow each other, from rank to rank, before the last rank has its result."""
    return {"all-reduce": steps_of(ranks), "send/recv": 1}.get(collective, ranks - 1)


def collective_seconds(collective: str, ranks: int, message_bytes: float, hop_s: float, link_gb_per_s: float) -> float:
    """Give the time of a ring: a latency each hop, and the bytes through a link at its rate."""
    moved = bus_factor(collective, ranks) * message_bytes
    return hops(collective, ranks) * hop_s + moved / (GB * link_gb_per_s)


def made_sweep(
    folder,
    *,
    gpus=4,
    device="cuda",
    counts=None,
    lines=None,
    bend=None,
    spread=0.02,
    first=30.0,
    status=None,
    size=None,
    name="NVIDIA H200",
    **knobs,
) -> Run:
    """Write a Sweep whose times are `lines` by backend; `bend(bytes, collective_seconds, knobs)` may change each.

    `spread`: the quartiles' distance from the median, as its share; `first`: the first call, in later ones; `status`:
    what a point ends with, by collective.
    """
    small = device == "cpu"
    plan = Sweep(
        device=device,
        gpus=gpus,
        counts=counts or (gpus,),
        size=size or ("small" if small else "full"),
        **{"sizes_kib": SMALL_KIB if small else SIZES_KIB} | knobs,
    )
    rows = []
    for point in plan.points():
        own = dict(vars(point))
        hop, rate = (lines or LINES)[point.backend]
        took = collective_seconds(point.collective, point.ranks, point.bytes, hop * CLOCKED[point.clock], rate)
        took = bend(point.bytes, took, own) if bend else took
        said = (status or {}).get(point.collective, "ok")
        rows.append((0, own | timed(took, spread, first) | {"message_bytes": point.bytes, "status": said}))
    return write_run(folder, plan, CPU if small else gpu_node(gpus, name), rows)


def timed(took: float, spread: float = 0.02, first: float = 30.0) -> dict:
    """Give what a point's row says of its times."""
    return {
        "seconds": took,
        "low_seconds": took * (1 - spread),
        "high_seconds": took * (1 + spread),
        "repeats": 7,
        "first_seconds": first * took,
        "status": "ok",
    }


def made_tests(folder, *, gpus=2, device="cuda", ratio=1.0, status="ok", said="", spread=0.001, seeds=(0,)) -> Run:
    """Write a NcclTests run: ours at `ratio` times nccl-tests' rate; `ratio` may be a function of collective, bytes."""
    sizes = (65536, 262144, 1048576)
    size = "small" if device == "cpu" else "full"
    plan = NcclTests(device=device, gpus=gpus, sizes_kib=sizes, size=size, seeds=seeds)
    rows = []
    for point in plan.points():
        own = dict(vars(point))
        if point.source == "ours":
            factor = ratio(point.collective, point.bytes) if callable(ratio) else ratio
            took = collective_seconds(point.collective, gpus, point.bytes, 5e-6, 380.0) / factor
            rows.append((0, own | timed(took, spread) | {"message_bytes": point.bytes, "placement": "in place"}))
        elif status != "ok":
            rows.append((0, own | {"status": status, "said": said}))
        else:
            for placement in ("in place", "out of place"):
                for kib in sizes:
                    took = collective_seconds(point.collective, gpus, kib * KIB, 5e-6, 380.0)
                    rate = bus_gb_per_s(point.collective, gpus, kib * KIB, took)
                    row = {
                        "bytes": kib * KIB,
                        "seconds": took,
                        "bus_gb_per_s": rate,
                        "placement": placement,
                        "status": "ok",
                        "version": "2.17.1",
                    }
                    rows.append((0, own | row))
    return write_run(folder, plan, CPU if device == "cpu" else gpu_node(gpus), rows)


def made_ring(folder, *, times=lambda elements: 2.0, sent=lambda right: right, status="ok", yours=False) -> Run:
    """Write a Ring run of three: ours takes `times(elements)` as long as the library's and sends `sent(right)`.

    `yours` adds a ring of an answer, which does as ours.
    """
    plan = Ring(device="cpu", gpus=3, size="small", lengths=(1, 1000, 2**18 + 1), yours="a file" * yours)
    rows = []
    for point in plan.points():
        own = dict(vars(point))
        took = collective_seconds("all-reduce", point.ranks, point.bytes, 60e-6, 2.0)
        right = 4 * sent_elements(0, point.elements, point.ranks)
        ours = point.method != "library"
        counted = {"sent_bytes": sent(right) if ours else float("nan"), "message_bytes": point.bytes}
        took *= times(point.elements) if ours else 1
        rows.append((0, own | timed(took) | counted | {"status": status}))
    return write_run(folder, plan, CPU, rows)
