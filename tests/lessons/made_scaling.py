"""Makes runs of lab 13 by hand: epochs with their parts, single steps, trainings, messages, trials."""

from made import CPU, gpu_node, write_run

from lessons.scaling.plan import Accuracy, Communication, Epochs, Messages
from lessons.scaling.tables import PARTS

SHARES = {"input": 0.04, "copy": 0.02, "forward": 0.3, "backward": 0.5, "exposed": 0.06, "optimizer": 0.07}
BYTES = 4 * 11_173_962


def _common(device: str, gpus: int) -> dict:
    return {"device": device, "gpus": gpus, "size": "full" if device == "cuda" else "small", "images": "glyphs"}


def _node(plan):
    return gpu_node(plan.gpus) if plan.device == "cuda" else CPU


def epochs_run(
    folder, *, device="cuda", gpus=4, serial=0.0, step_ms=4.0, image_us=80.0, rest=0.01, doubled=False, **knobs
):
    """Write epochs whose steps take step_ms and image_us per image, of which `serial` per image does not divide.

    `rest` is the share that no part explains; `doubled`: every rank does all steps, as without a sampler.
    """
    plan = Epochs(**_common(device, gpus), seeds=(0,), **knobs)
    rows = []
    for point in plan.points():
        steps = plan.training // (point.gpu_batch if doubled else point.batch)
        seconds = steps * (step_ms / 1e3 + point.gpu_batch * image_us / 1e6)
        seconds += serial * plan.training * image_us / 1e6 * (1 - 1 / point.ranks)
        for iteration, factor in enumerate((5, 0.99, 1.0, 1.01)):
            for rank in range(point.ranks):
                row = vars(point) | {"entry": "epoch", "iteration": iteration, "warm_up": iteration == 0}
                row |= {"seconds": seconds * factor, "steps": steps, "images": steps * point.gpu_batch}
                parts = {
                    f"{part}_ms": 1e3 * seconds * factor * share * (1 - rest) / sum(SHARES.values())
                    for part, share in SHARES.items()
                }
                rows.append((rank, row | parts))
    assert set(SHARES) == set(PARTS[:-1])
    return write_run(folder, plan, _node(plan), rows)


def communication_run(folder, *, device="cuda", gpus=4, trace=0.5, hooks=0.5, steps=0.5, dp=3.0, **knobs):
    """Write steps of 10 ms of which the all-reduce exposes so many ms, by three ways; alone it takes 1 ms."""
    plan = Communication(**_common(device, gpus), seeds=(0,), **knobs)
    rows = []
    for point in plan.points():
        if point.strategy == "dp":
            rows += [(0, _timed(point, "step", iteration, 10.0 * dp)) for iteration in range(4)]
            continue
        for rank in range(point.ranks):
            times = {"step": 10.0, "gradients": 9.0, "muted": 9.0 - steps, "waited": hooks, "alone": 1.0}
            for name, ms in times.items():
                rows += [(rank, _timed(point, name, iteration, ms)) for iteration in range(4)]
            sent = {"entry": "sent", "iteration": 0, "calls": 3, "sent_bytes": BYTES}
            rows.append((rank, vars(point) | sent))
            if point.ranks == gpus:
                rows.append((rank, vars(point) | {"entry": "profile", "window_ms": 10.0, "exposed_ms": trace}))
    return write_run(folder, plan, _node(plan), rows)


def _timed(point, name, iteration, ms):
    factor = (5, 0.99, 1.0, 1.01)[iteration]
    return vars(point) | {"entry": name, "iteration": iteration, "warm_up": iteration == 0, f"{name}_ms": ms * factor}


def accuracy_run(folder, percent: dict, *, device="cuda", gpus=4, spread=0.5, **knobs):
    """Write trainings that reach these test accuracies, the seeds `spread` apart."""
    plan = Accuracy(**_common(device, gpus), **knobs)
    rows = []
    for point in plan.points():
        for epoch in range(plan.epochs):
            reached = percent[point.variant] + spread * (point.seed - (len(plan.seeds) - 1) / 2)
            row = {"entry": "training", "iteration": epoch, "epoch": epoch, "steps": plan.training // point.batch}
            row |= {"seconds": 8.0 / point.ranks, "train_loss": 1.0, "train_percent": reached - 3}
            rows.append((0, vars(point) | row | {"test_percent": reached}))
    return write_run(folder, plan, _node(plan), rows)


def messages_run(folder, *, gpus=4, told=True, quiet=True):
    """Write what DDP calls; `told`: set_epoch changes the order; `quiet`: no_sync sends no gradients."""
    plan = Messages(**_common("cuda", gpus))
    (point,) = plan.points()
    calls = [
        ("construction", "all-gather", 1, 8),
        ("construction", "broadcast", 3, BYTES),
        ("first step", "broadcast", 2, 38_560),
        ("first step", "all-reduce", 3, BYTES),
        ("second step", "broadcast", 4, 38_900),
        ("second step", "all-reduce", 3, BYTES),
        ("third step", "broadcast", 2, 38_560),
        ("third step", "all-reduce", 3, BYTES),
        ("a step under no_sync", "broadcast", 2, 38_560),
        ("a second step under no_sync", "none", 0, 0),
        *([] if quiet else [("a step under no_sync", "all-reduce", 3, BYTES)]),
    ]
    rows = [
        (0, vars(point) | {"entry": "message", "phase": phase, "collective": name, "calls": count, "sent_bytes": size})
        for phase, name, count, size in calls
    ]
    for set_epoch in (True, False):
        for epoch in range(3):
            numbers = [7, 3, epoch if set_epoch and told else 0]
            rows.append(
                (0, vars(point) | {"entry": "order", "set_epoch": set_epoch, "epoch": epoch, "numbers": numbers})
            )
    return write_run(folder, plan, _node(plan), rows)
