"""Makes runs of lab 10 by hand: steps and what they sent, equality and trials, as two H200s might have given them."""

from made import CPU, gpu_node, write_run

from labkit.engine.run import Run
from lessons.ddp_from_scratch.plan import Buckets, Equality, Implementations, Trial
from lessons.ddp_from_scratch.theory import Overhead, messages

STEP_MS = {"none": 90.0, "naive": 122.0, "flat": 118.0, "overlapped": 100.0, "bucketed": 97.0, "ddp": 96.0}
EARLY = ("overlapped", "bucketed", "ddp")
LINE = Overhead(0.096, 2e-5, 1e11)  # the made sweep follows it
NOISE = (-0.002, 0.002, 0.0, 0.001, -0.001)  # of a step, iteration by iteration


def steps_run(folder, plan, step_ms, *, failed=(), extra_call=0, noise=NOISE) -> Run:
    """Write a run whose point takes `step_ms(point, sizes)`; what was sent is the formula's, but for `extra_call`."""
    rows = []
    for point in plan.points():
        sizes = messages(plan.model, point.strategy, point.bucket_mb)
        took = step_ms(point, sizes)
        for rank in range(plan.gpus):
            knobs = vars(point) | {"entry": "step"}
            if point.strategy in failed:
                rows.append((rank, knobs | {"status": "out of memory"}))
                continue
            waited = 0.0 if point.strategy == "none" else 4.0 if point.strategy in EARLY else took - 90
            parts = {"forward_ms": 20.0, "backward_ms": took - 30 - waited, "waited_ms": waited, "optimizer_ms": 10.0}
            peak = {"peak_mib": 40_000.0 + rank + 7_600 * (point.strategy == "flat")} if plan.device == "cuda" else {}
            for iteration, share in enumerate((9, *noise)):
                rows.append(
                    (
                        rank,
                        knobs
                        | parts
                        | peak
                        | {"iteration": iteration, "warm_up": share == 9, "step_ms": took * (1 + share) - rank},
                    )
                )
            if point.seed == plan.seeds[0]:
                sent = sizes + [4] * extra_call
                early = len(sent) if point.strategy in EARLY else 0
                rows.append(
                    (
                        rank,
                        vars(point)
                        | {
                            "entry": "sent",
                            "collectives": len(sent),
                            "during_backward": early,
                            "sizes_bytes": sent,
                            "before_last_gradient": max(0, early - 1),
                            "gradients": len(plan.model.shapes),
                            "gradients_after_first": 400 if early else 0,
                        },
                    )
                )
    node = gpu_node(plan.gpus) if plan.device == "cuda" else CPU
    return write_run(folder, plan, node, rows)


def implementations_run(folder, *, step_ms=None, failed=(), extra_call=0, noise=NOISE, device="cuda", **knobs) -> Run:
    """Write a run of every strategy; `step_ms` changes some."""
    plan = Implementations(**{"device": device, "gpus": 2, "size": "full", "seeds": (0, 1)} | knobs)
    took = STEP_MS | (step_ms or {})
    return steps_run(
        folder, plan, lambda point, sizes: took[point.strategy], failed=failed, extra_call=extra_call, noise=noise
    )


def buckets_run(folder, *, line=LINE, ddp_ms=100.0, noise=NOISE, device="cuda", **knobs) -> Run:
    """Write a bucket sweep that follows `line`."""
    plan = Buckets(**{"device": device, "gpus": 2, "size": "full", "seeds": (0, 1)} | knobs)

    def step_ms(point, sizes):
        known = {"none": 90.0, "ddp": ddp_ms}
        return known.get(point.strategy) or 1e3 * line.seconds(len(sizes), sum(sizes))

    return steps_run(folder, plan, step_ms, noise=noise)


def equality_run(folder, **wrong) -> Run:
    """Write a run of all cases, right but for what `wrong` says of rank 1."""
    plan = Equality(device="cuda", gpus=2, size="full")
    right = {
        "entry": "equality",
        "gradient_error": 1e-7,
        "weight_error": 1e-7,
        "buffer_error": 0.0,
        "apart": 0.0,
        "none_right": True,
    }
    rows = [(rank, vars(point) | right | (wrong if rank else {})) for point in plan.points() for rank in range(2)]
    return write_run(folder, plan, gpu_node(2), rows)


def trial_run(folder, **wrong) -> Run:
    """Write a trial of the right variant, but for what `wrong` says of rank 1."""
    plan = Trial(device="cuda", gpus=2, size="full")
    (point,) = plan.points()
    sizes = messages(plan.model, "bucketed", point.bucket_mb)
    right = {
        "entry": "trial",
        "error": 1e-7,
        "later_error": 1e-7,
        "collectives": len(sizes),
        "sizes_bytes": sizes,
        "before_last_gradient": len(sizes) - 1,
    }
    rows = [(rank, vars(point) | right | (wrong if rank else {})) for rank in range(2)]
    return write_run(folder, plan, gpu_node(2), rows)
