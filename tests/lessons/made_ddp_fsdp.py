"""Makes runs of lab 04 by hand: every strategy, a ladder of knobs, DeepSpeed's stages."""

from made import CPU, gpu_node, write_run

from labkit.theory.sizes import MIB
from labkit.theory.traffic import traffic
from lessons.ddp_fsdp.plan import Knobs, Strategies, Zero
from lessons.ddp_fsdp.tables import forecast

STEP_MS = {"single": 95.0, "ddp": 100.0, "fsdp_grad": 104.0, "fsdp_full": 101.0, "fsdp_root": 250.0}
MEMORY = "out of memory"


def made_run(folder, plan, step_ms, *, failed=(), unexplained=0.02, calls=0):
    """Write a run: each step 2 % shorter, as given, and 2 % longer, after a warm-up; then the first seed's ledgers.

    `step_ms` takes a point. What is `failed` (a strategy or knob) did not fit; a peak is `unexplained` more than the
    forecast; `calls` are counted too many.
    """
    rows = []
    for point in plan.points():
        knobs = vars(point)
        for rank in range(plan.gpus):
            who = knobs | {"warm_up": False}
            if {point.strategy, knobs.get("knob")} & {*failed}:
                rows.append((rank, who | {"status": MEMORY}))
                continue
            for iteration, factor in enumerate((9, 0.98, 1.0, 1.02)):
                slow = 1 if rank else 0.9
                step = {"entry": "step", "iteration": iteration, "step_ms": step_ms(point) * factor * slow}
                rows.append((rank, who | step | {"warm_up": iteration == 0}))
            if point.seed == plan.seeds[0] and not point.strategy.startswith("zero"):
                rows += [(rank, who | row) for row in ledgers(plan, knobs, unexplained * (rank == 0), calls)]
    gpus = plan.device == "cuda"
    return write_run(folder, plan, gpu_node(plan.gpus) if gpus else CPU, rows)


def ledgers(plan, knobs, unexplained, calls):
    items = forecast(plan, knobs)
    held = {f"{item}_mib": items[item] / MIB for item in ("parameters", "gradients", "optimizer", "activations")}
    if plan.device == "cuda":
        held |= {"peak_mib": sum(items.values()) / MIB / (1 - unexplained), "reserved_mib": 9e3}
    yield {"entry": "memory"} | held
    for one in traffic(plan.model, knobs["strategy"], knobs["ranks"]):
        counted = {"collective": one.collective, "calls": one.calls + calls, "sent_bytes": one.bytes}
        yield {"entry": "traffic"} | counted


def strategies_run(folder, *, device="cuda", gpus=4, size="full", step_ms=None, **knobs):
    """Write a run of every strategy; the smaller batch takes as long as the larger."""
    more = {name: knobs.pop(name) for name in ("failed", "unexplained", "calls") if name in knobs}
    plan = Strategies(device=device, gpus=gpus, size=size, seeds=(0, 1), repeats=3, warm_ups=1, **knobs)
    return made_run(folder, plan, lambda point: (STEP_MS | (step_ms or {}))[point.strategy], **more)


def knobs_run(folder, rates=(290, 293, 750, 1700, 1600), *, device="cuda", size="full", failed=(), **knobs):
    """Write a ladder of these samples a second."""
    plan = Knobs(device=device, gpus=4, size=size, repeats=3, warm_ups=1, seeds=(0,), **knobs)
    at = dict(zip(plan.steps, rates, strict=False))
    return made_run(folder, plan, lambda point: 64e3 / at[point.knob], failed=failed)


def zero_run(folder, *, device="cuda", strategies=("ddp", "zero1", "fsdp_grad", "zero2", "fsdp_full"), **knobs):
    """Write DeepSpeed's stages beside the others: their ledgers hold what the allocator and the counter said."""
    knobs |= {"size": "full" if device == "cuda" else "small", "repeats": 3, "warm_ups": 1, "seeds": (0,)}
    plan = Zero(device=device, gpus=4, strategies=strategies, **knobs)
    run = made_run(folder, plan, lambda point: 130.0 if point.strategy.startswith("zero") else 100.0)
    for point in plan.points():
        if point.strategy.startswith("zero"):
            for rank in range(plan.gpus):
                peak = {"peak_mib": 9000.0 + rank} if device == "cuda" else {}
                run.append(rank, vars(point) | {"entry": "memory"} | peak)
                sent = {"collective": "all-reduce", "calls": 5, "sent_bytes": 400 * MIB}
                run.append(rank, vars(point) | {"entry": "traffic"} | sent)
                run.append(rank, vars(point) | {"entry": "traffic"} | sent | {"collective": "all-gather", "calls": 2})
    return run
