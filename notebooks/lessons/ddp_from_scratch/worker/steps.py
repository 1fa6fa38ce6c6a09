"""What lab 10's workers do: wrap one transformer in each strategy, time steps, count what they send, trace one."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import nn

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.clocks import Tape, fence
from labkit.worker.settings import prepare as settle
from labkit.worker.settings import release_memory, set_precision
from labkit.worker.trace import profile_step
from labkit.worker.trainer import adamw
from labkit.worker.transformer import Transformer, seeded_transformer
from lessons.ddp_from_scratch.plan import YOURS, Equality, Profiles, Trial
from lessons.ddp_from_scratch.worker.equality import compare, try_variant
from lessons.ddp_from_scratch.worker.issued import IssueOrder
from lessons.ddp_from_scratch.worker.wrapped import wrap

_LEARNING_RATE = 1e-4
_PARTS = ("forward_ms", "backward_ms", "waited_ms", "optimizer_ms")


def prepare(worker: Worker) -> Transformer | None:
    """Build the model once, because building XL takes longer than its steps; every strategy wraps the same model."""
    settle(worker)
    return None if isinstance(worker.plan, Equality | Trial) else seeded_transformer(worker.plan, 0, worker.device)


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point: a trial of a small model, or steps of the large one."""
    set_precision(point.precision)
    if isinstance(worker.plan, Equality):
        compare(worker, point)
    elif isinstance(worker.plan, Trial):
        models = (seeded_transformer(worker.plan, seed, worker.device) for seed in (worker.rank, 0))
        try_variant(worker, point, *models)
    else:
        run_point(worker, point)
        release_memory(worker)


def run_point(worker: Worker, point: SimpleNamespace) -> None:
    """Time the steps under the point's strategy and record what one of them sends; of Profiles, trace one step."""
    loop = SteppingLoop(worker, point, worker.state)
    try:
        if isinstance(worker.plan, Profiles):
            profile(worker, loop)
        else:
            _time_steps(worker, loop)
            if point.seed == worker.plan.seeds[0]:
                _note_sent(worker, loop)
    finally:  # also when a point runs out of memory: the next one wraps the same model
        loop.close()


class SteppingLoop:
    """A wrapped model with its optimizer and this rank's samples; `moments` are those of the last step.

    A step's parts lie between five moments on the device: its start, the loss, the last gradient (that of the first
    weight), the end of `finish`, the end of the update.
    """

    def __init__(self, worker: Worker, point: SimpleNamespace, model: nn.Module):
        plan, self.device = worker.plan, worker.device
        self.optimizer = adamw(_LEARNING_RATE, point.precision, True)(model.parameters())
        self.autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=point.precision == "autocast")
        generator = torch.Generator().manual_seed(1000 * point.seed + worker.rank)
        tokens = torch.randint(plan.vocabulary, (plan.samples, plan.sequence + 1), generator=generator)
        self.batch = [part.to(self.device) for part in (tokens[:, :-1], tokens[:, 1:])]
        self.tape, self.moments = Tape(self.device), []
        file = getattr(plan, YOURS.get(point.strategy, ""), "")
        self.model, self.wrapped = model, wrap(model, point.strategy, point.bucket_mb, file=file)
        first = next(model.parameters())
        self.hook = first.register_post_accumulate_grad_hook(lambda _: self.note_moment())

    def note_moment(self) -> None:
        """Note this moment."""
        self.moments.append(self.tape.now())

    def forward(self) -> torch.Tensor:
        with self.autocast:
            return self.wrapped(*self.batch)

    def step(self) -> None:
        """Run one step."""
        self.moments.clear()
        self.note_moment()
        loss = self.forward()
        self.note_moment()
        loss.backward()
        self.wrapped.finish()
        self.note_moment()
        self.update()
        self.note_moment()

    def update(self) -> None:
        """Update the weights and delete the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def parts(self) -> dict[str, float]:
        """Return the parts of the last step in ms; call it when the device is idle."""
        pairs = pairwise(self.moments)
        parts_ms = [1e3 * (b - a) if isinstance(a, float) else a.elapsed_time(b) for a, b in pairs]
        return dict(zip(_PARTS, parts_ms, strict=True))

    def close(self) -> None:
        """Leave the model as it was before it was wrapped."""
        self.hook.remove()
        self.wrapped.close()
        self.optimizer.zero_grad()


def _time_steps(worker: Worker, loop: SteppingLoop) -> None:
    """Time whole steps, which all ranks start together; append a row per step: its time, its parts, the peak memory."""
    gpu = worker.device.type == "cuda"
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    for timing in worker.time(loop.step, before=lambda: fence(None)):
        if gpu and timing.iteration == worker.plan.warm_ups - 1:
            torch.cuda.reset_peak_memory_stats()  # leaves out what is set up once, such as torch's buckets
        peak = {"peak_mib": torch.cuda.max_memory_allocated() / MIB} if gpu else {}
        worker.record(
            entry="step",
            iteration=timing.iteration,
            warm_up=timing.warm_up,
            step_ms=1e3 * timing.seconds,
            **loop.parts(),
            **peak,
        )


def _note_sent(worker: Worker, loop: SteppingLoop) -> None:
    """Append a row entry="sent" with what `IssueOrder` records of one more step."""
    worker.record(entry="sent", **IssueOrder(loop.model).during(loop.forward, loop.wrapped.finish))
    loop.update()


def profile(worker: Worker, loop: SteppingLoop) -> None:
    """Append the profiler's rows of one step, after warm-ups.

    Each step ends with `drain`: if torch's profiler stops during a gloo collective, it frees memory that the collective
    still writes to.
    """

    def drained_step() -> None:
        loop.step()
        loop.wrapped.drain()

    for _ in range(worker.plan.warm_ups):
        drained_step()
    worker.barrier()
    profile_step(worker, drained_step)
