"""Makes runs of lab 08: memory as the formulas say, times that grow with the work; a test may change either."""

from __future__ import annotations

from made import CPU, gpu_node, write_run

from labkit.theory.sizes import MIB
from lessons.attention.plan import WIDTH, Errors, Plain, Race
from lessons.attention.theory import MOMENTS, moment_bytes

NO_MEMORY = {"status": "out of memory"}
PER_PAIR = {"plain": 2e-7, "tiled": 9e-7, "flash": 2e-8, "sdpa_flash": 3e-8, "sdpa_cudnn": 1.5e-8}  # ms
PER_PAIR |= {"hopper": 1.4e-8}
LAUNCH_MS = {"flash": 0.3, "sdpa_flash": 0.1}
SHARES = {"forward": 0.25, "backward": 0.75, "both": 1.0}


def made(folder, plan, rows, gpu="NVIDIA H200"):
    return write_run(folder / "run", plan, gpu_node(1, gpu) if plan.device == "cuda" else CPU, rows)


def weight(point, on_gpu=True) -> dict:
    """Give the memory row of a point, just as the formulas say."""
    if point.implementation == "compiled":
        square = point.heads * point.sequence**2 * WIDTH[point.precision] / MIB
        return {"forward_mib": square, "held_mib": square, "backward_mib": 3 * square}
    form = {"heads": point.heads, "causal": point.causal, "on_gpu": on_gpu}
    size = point.sequence, point.head_dim, WIDTH[point.precision]
    known = {moment: moment_bytes(point.implementation, moment, *size, **form) for moment in MOMENTS}
    return {"kept_bytes": known["kept"]} | {f"{moment}_mib": known[moment] / MIB for moment in MOMENTS[1:]}


def plain_ms(point) -> dict:
    """Give ms: as N² from 1 at 4096; a clock that does not wait shows 0.08 ms at any length."""
    slower = {"by_hand": 2.0, "plain": 1.0, "compiled": 0.5}[point.implementation]
    work = max((point.sequence / 4096) ** 2, 0.1)
    waited = {"forward": work, "backward": 2.5 * work, "both": 3.5 * work}
    return {name: slower * ms for name, ms in (waited | {"unsynchronised": 0.08}).items()}


def weighed(folder, plan, *, change=lambda point, row: row, ms=plain_ms, failed=lambda point: False):
    """Write a run of Plain or Memory; `change` alters the memory's row."""
    rows = []
    for point in plan.points():
        if failed(point):
            rows.append((0, vars(point) | NO_MEMORY))
            continue
        rows.append((0, vars(point) | {"phase": "memory"} | change(point, weight(point, plan.device == "cuda"))))
        if isinstance(plan, Plain):
            rows += [(0, vars(point) | {"phase": phase, "ms": value}) for phase, value in ms(point).items()]
    return made(folder, plan, rows)


def time_ms(point, per_pair=PER_PAIR, launch_ms=LAUNCH_MS) -> float:
    """Give forward and backward together: the GPU's time goes with the work, and launching is added to it."""
    width = point.head_dim / 64 * (12 if point.precision == "float32" else 1)
    alone = per_pair[point.implementation] * point.sequence**2 * width
    captured = getattr(point, "clock", "launched") == "captured"
    return alone if captured else alone + launch_ms.get(point.implementation, 0.2)


def timed(folder, plan, ms=time_ms, failed=lambda point: None, gpu="NVIDIA H200"):
    """Write a Race or Sweep; `failed` gives the phases that a point reached before memory was full, None if it fits."""
    rows = []
    for point in plan.points():
        captured, reached = getattr(point, "clock", "") == "captured", failed(point)
        for phase, share in SHARES.items():
            if not (captured and phase == "backward") and phase in (SHARES if reached is None else reached):
                value = share * ms(point)
                told = {"phase": phase, "ms": value, "low_ms": 0.9 * value, "high_ms": 1.1 * value, "repeats": 9}
                rows.append((0, vars(point) | told))
        if reached is not None:
            rows.append((0, vars(point) | NO_MEMORY))
    return made(folder, plan, rows, gpu)


def raced(folder, **changed):
    """Write a race with other costs: `flash` per pair of positions, `flash_ms` of launching."""
    per_pair = PER_PAIR | {name: value for name, value in changed.items() if name in PER_PAIR}
    launch_ms = LAUNCH_MS | {name.removesuffix("_ms"): ms for name, ms in changed.items() if name.endswith("_ms")}
    return timed(folder, Race(device="cuda"), lambda point: time_ms(point, per_pair, launch_ms))


def erring(folder, *, worst=1e-6, same=True):
    """Write a run of Errors, in which the last point's dK is off by `worst`."""
    plan = Errors.full(device="cuda", gpus=1)
    tensors = {f"{name}_error": 1e-6 for name in ("O", "L", "dQ", "dK", "dV")}
    rows = [(0, vars(point) | tensors | {"same_bits": True}) for point in plan.points()]
    rows[-1][1].update({"dK_error": worst, "same_bits": same})
    return made(folder, plan, rows)
