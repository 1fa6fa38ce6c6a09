"""Whole steps, updates, and updates that send nothing, each by a clock of its own."""

from __future__ import annotations

from labkit.engine.worker import Worker
from labkit.labs.optimizer_sharding.worker.training import Replica
from labkit.labs.optimizer_sharding.worker.ways import local_update
from labkit.worker.clocks import fence


def time_steps(worker: Worker, point) -> None:
    """Append a row an iteration of each part: "step" (all of it), "update" (with its sending), "local" (without).

    All ranks start together. What is sent only where it is timed: after "local" the replicas are no longer equal.
    """
    replica = Replica(worker.plan, point, worker.rank, worker.device)
    parts = {
        "step": (replica.step, lambda: None),
        "update": (replica.optimizer.step, replica.gradients),
        "local": (local_update(replica.optimizer), replica.gradients),
    }
    for part, (work, ahead) in parts.items():
        for timing in timed(worker, replica, work, ahead):
            worker.record(part=part, iteration=timing.iteration, warm_up=timing.warm_up, ms=1e3 * timing.seconds)


def time_updates(worker: Worker, point) -> None:
    """Append a row an iteration of the update alone; its gradients are those of one backward."""
    replica = Replica(worker.plan, point, worker.rank, worker.device)
    replica.gradients()
    for part, work in (("update", replica.optimizer.step), ("local", local_update(replica.optimizer))):
        often = {"warm_ups": worker.plan.warm_ups, "repeats": worker.plan.repeats}
        for timing in worker.time(work, **often, before=lambda: fence(None)):
            worker.record(part=part, iteration=timing.iteration, warm_up=timing.warm_up, ms=1e3 * timing.seconds)


def timed(worker: Worker, replica: Replica, work, ahead):
    """Time `work` as often as the plan says; `ahead` brings the gradients that it needs, outside the clock."""

    def before() -> None:
        replica.optimizer.zero_grad()
        ahead()
        worker.synchronize()
        fence(None)

    return worker.time(work, warm_ups=worker.plan.warm_ups, repeats=worker.plan.repeats, before=before)
