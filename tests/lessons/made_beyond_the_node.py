"""Makes runs of lab 14 by hand: two nodes of two processes, whose times follow a line for each place and rate."""

from __future__ import annotations

from made import CPU, write_run

from labkit.node.network import LENT_LINK
from lessons.beyond_the_node.plan import LocalSteps, Messages, Strategies
from lessons.beyond_the_node.theory import link_bytes, step_link_bytes

NODES, PER_NODE = 2, 2
HEADERS = 1.047  # what packets add to the bytes
ALPHA_S, INSIDE_GB_PER_S = 1e-3, 1.0
COMPUTE_MS, GRADIENT_BYTES = 40.0, 2_000_000
ROOT = 32_064 / 163_392  # of the small model's parameters: embedding, head and last norm
FSDP_PASSES = {"gathers": 2 - ROOT, "scatters": 2}  # the root is gathered once; gloo's scatter is an all-reduce


def two_nodes(folder, plan, rows, interface=LENT_LINK):
    """Write a run of two nodes."""
    run = write_run(folder, plan, CPU, rows)
    run.write_nodes((CPU,) * NODES, ({"interface": interface, "gbit_per_s": None, "cards": []},) * NODES, ())
    return run


def messages_run(
    folder, share=0.95, factors=(0.99, 1.0, 1.01), hierarchical=1.0, yours=0.0, status="ok", headers=HEADERS
):
    """Write all-reduces whose line between nodes has this share of the rate that was set.

    `yours`: the bytes of somebody's all-reduce over the hierarchical one's, which ends with `status`; 0: there is none.
    """
    plan = Messages.small(gpus=4, link_mbit=(300, 100), yours="yours.py" if yours else "")
    rows = []
    for point in plan.points():
        size = 1024 * point.kib
        is_yours = point.place == "yours"
        sent = yours * link_bytes("hierarchical", size, NODES, PER_NODE) if is_yours else 0.0
        sent = sent or link_bytes(point.place, size, NODES, PER_NODE)
        rate = INSIDE_GB_PER_S if point.place == "inside" else share * point.link_mbit / 8e3
        seconds = ALPHA_S + (sent or size) / rate / 1e9
        seconds *= hierarchical if point.place == "hierarchical" else 1
        ranks = (0, 2) if point.place == "between" else range(4)
        for rank in ranks:
            counted = headers * sent if rank % PER_NODE == 0 else None
            for iteration, factor in enumerate(factors):
                timed = {"iteration": iteration, "warm_up": False, "seconds": factor * seconds, "sent_bytes": counted}
                rows.append((rank, vars(point) | {"status": status if is_yours else "ok"} | timed))
    return two_nodes(folder, plan, rows)


def strategies_run(folder, factors=(0.99, 1.0, 1.01), slower=None, extra_bytes=1.0):
    """Write steps that compute, then send; `slower` multiplies the steps of some strategies."""
    plan = Strategies.small(gpus=4, link_mbit=(300, 100))
    rows = []
    for point in plan.points():
        sent = extra_bytes * step_link_bytes(
            point.strategy, GRADIENT_BYTES, NODES, PER_NODE, point.accumulation, **FSDP_PASSES
        )
        sending_ms = 8e-3 * sent / point.link_mbit if sent else 0.0
        step_ms = (point.accumulation * COMPUTE_MS + sending_ms) * (slower or {}).get(point.strategy, 1)
        for rank in range(4):
            counted = HEADERS * sent if rank % PER_NODE == 0 else None
            for iteration, factor in enumerate(factors):
                timed = {"iteration": iteration, "warm_up": False, "step_ms": factor * step_ms, "sent_bytes": counted}
                rows.append((rank, vars(point) | {"status": "ok", "gradient_bytes": GRADIENT_BYTES} | timed))
    return two_nodes(folder, plan, rows)


def local_run(folder, worse=0.0, apart=0.0, seeds=(0, 1)):
    """Write trainings whose loss falls; those that exchange rarely end `worse` nats higher."""
    plan = LocalSteps.small(gpus=4, steps=16, every=(1, 16), seeds=seeds)
    whole, rows = 4 * plan.model.parameters, []
    for point in plan.points():
        each = HEADERS * step_link_bytes("local", whole, NODES, PER_NODE)
        for step in range(plan.steps):
            exchanges = (step + 1) // point.every
            loss = 5.0 - 0.1 * step + (worse if point.every > 1 else 0) + 0.001 * point.seed
            row = {"iteration": step, "warm_up": False, "status": "ok", "loss": loss, "sent_bytes": exchanges * each}
            if step == plan.steps - 1:
                row |= {"final_loss": loss, "apart": apart}
            rows += [(rank, vars(point) | row) for rank in range(4)]
    return two_nodes(folder, plan, rows)
