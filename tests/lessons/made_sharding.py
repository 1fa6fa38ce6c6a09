"""Makes runs of lab 05 by hand."""

from made import gpu_node, write_run

from labkit.theory.traffic import traffic

NO_MEMORY = {"status": "out of memory"}


def made(folder, plan, step_ms, *, factor=1.02, counted=0, change=lambda point: {}, failed=lambda point: False):
    """Write a run: three steps a point, 1 % apart, after a slow warm-up; peaks `factor` times the ledger's.

    `step_ms` gives a point's step; `counted` calls are added to each collective; `change` overrides a point's knobs.
    """
    rows = []
    for point in plan.points():
        knobs = vars(point) | change(point)
        if failed(point):
            rows.append((0, knobs | NO_MEMORY))
            continue
        for rank in range(point.ranks):
            step = step_ms(point) * (1 - 0.2 * rank)  # the slowest rank counts
            steps = [(True, 9 * step), (False, 0.99 * step), (False, step), (False, 1.01 * step)]
            rows += [
                (rank, knobs | {"entry": "step", "iteration": i, "warm_up": warm_up, "step_ms": ms})
                for i, (warm_up, ms) in enumerate(steps)
            ]
            items = plan.forecast(vars(point))
            mib = {f"{name}_mib": size / 2**20 for name, size in items.items()}
            peak = factor * sum(items.values()) / 2**20
            rows.append((rank, knobs | {"entry": "memory", "peak_mib": peak, "reserved_mib": 1.1 * peak} | mib))
            synced = point.micro_batches if point.synced == "every" else 1
            for sent in traffic(
                plan.model(point.vocabulary),
                point.strategy,
                point.ranks,
                element_bytes=2,
                micro_batches=point.micro_batches,
                synced=synced,
            ):
                one = {"collective": sent.collective, "calls": sent.calls + counted, "sent_bytes": sent.bytes}
                rows.append((rank, knobs | {"entry": "traffic"} | one))
    return write_run(folder, plan, gpu_node(plan.gpus), rows)


def full(kind, **knobs):
    return kind.full(**{"device": "cuda", "gpus": 2, "seeds": (0,)} | knobs)


def step_of(point) -> float:
    """Give ms: 500 for 48 sequences on one GPU, 10 more for exchanging; shared out, 50 more."""
    own = 500 / 48 * point.micro_batch * point.micro_batches
    return own + (point.ranks > 1) * (10 if point.load == "large" else 50)
