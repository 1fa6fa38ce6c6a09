"""Lab 10, what the workers do: build the transformer once, wrap it in each strategy, time, count, trace and try it."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from labkit.engine.worker import Worker
from labkit.labs.ddp_from_scratch.plan import Equality, Profiles, Replicas, Trial
from labkit.labs.ddp_from_scratch.worker.equality import compare
from labkit.labs.ddp_from_scratch.worker.steps import Loop, note_sent, profile, time_steps
from labkit.labs.ddp_from_scratch.worker.trials import put_on_trial
from labkit.worker.settings import forget, set_precision
from labkit.worker.settings import prepare as settle
from labkit.worker.transformer import Transformer


def prepare(worker: Worker) -> Transformer | None:
    """Build the model once, for to build XL takes longer than its steps; every strategy wraps it and lets it go."""
    settle(worker)
    return None if isinstance(worker.plan, Equality | Trial) else built(worker.plan, worker.device)


def built(plan: Replicas, device: torch.device, seed: int = 0) -> Transformer:
    """Return the plan's transformer, made on the device."""
    torch.manual_seed(seed)
    with device:
        return Transformer(plan.vocabulary, plan.sequence, plan.hidden, plan.inner, plan.layers, plan.heads)


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point: a trial of a small model, or steps of the large one."""
    set_precision(point.precision)
    if isinstance(worker.plan, Equality):
        compare(worker, point)
    elif isinstance(worker.plan, Trial):
        put_on_trial(worker, point, [built(worker.plan, worker.device, worker.rank), built(worker.plan, worker.device)])
    else:
        run_point(worker, point)
        forget(worker)


def run_point(worker: Worker, point: SimpleNamespace) -> None:
    """Time the steps under the point's strategy and note what they send, or trace one."""
    loop = Loop(worker, point, worker.state)
    try:
        if isinstance(worker.plan, Profiles):
            profile(worker, loop)
        else:
            time_steps(worker, loop)
            if point.seed == worker.plan.seeds[0]:
                note_sent(worker, loop)
    finally:  # a point that runs out of memory is not the last one: the next wraps the same model
        loop.close()
