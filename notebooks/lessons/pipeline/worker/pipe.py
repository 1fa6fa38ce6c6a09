"""BERT cut into stages: the embedding goes with the first stage, pooler, head and loss with the last."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from labkit.engine.called_function import load_function
from labkit.engine.worker import Worker
from labkit.worker.bert import Stage, loss_of, model_knobs, samples
from labkit.worker.clocks import Tape
from lessons.pipeline.plan import KEPT, YOURS
from lessons.pipeline.theory.schedules import Step, layers_of, order_of
from lessons.pipeline.worker.by_hand import Link, run_steps


def layers_of_stages(sizes: list[int]) -> list[range]:
    """Return the layers of each stage: [6, 2, 2, 2] gives layers 0 to 5, 6 and 7, 8 and 9, 10 and 11."""
    return [range(first, end) for first, end in pairwise([0, *accumulate(sizes)])]


SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero_bubble": ScheduleInterleavedZeroBubble,
}
ONE_STAGE = ("gpipe", "1f1b")  # their classes take a stage, the others a list of stages
_WATCHED = {"F": "forward_one_chunk", "B": "backward_one_chunk", "W": "backward_weight_one_chunk"}


class Pipe:
    """This rank's stages of the point's pipeline, and the schedule that runs them: what a training script would hold.

    Stage s is on rank s mod ranks. `cutting` gives each stage's layers and `scale_grads` divides the gradients by the
    number of micro-batches: both are here so that a bug can be put in their place.
    """

    def __init__(
        self,
        worker: Worker,
        point: SimpleNamespace,
        groups: tuple[dist.ProcessGroup | None, ...],
        *,
        cutting=layers_of_stages,
        scale_grads=True,
    ):
        parts = cutting(layers_of(point.split))
        self.training = point.mode == "training"
        self.keeps_activations = point.mode == KEPT
        self.tape = Tape(worker.device)
        self.modules = {
            number: Stage(
                worker.plan,
                parts[number],
                point.seed,
                worker.device,
                point.precision,
                first=number == 0,
                last=number == len(parts) - 1,
                **model_knobs(point),
            )
            for number in range(worker.rank, len(parts), point.ranks)
        }
        self._schedule(worker, point, groups, len(parts), scale_grads)
        self.first, self.last = 0 in self.modules, len(parts) - 1 in self.modules
        batch = samples(worker.plan, worker.plan.batch, point.seed)  # the same on every rank
        self.tokens, self.labels = (part.to(worker.device) for part in batch)
        weights = [weight for module in self.modules.values() for weight in module.parameters()]
        self.optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
        self._update = self.tape.with_span("U", -1, self._update)

    def _schedule(self, worker: Worker, point: SimpleNamespace, groups: Any, parts: int, scale_grads: bool) -> None:
        """Have torch run the stages."""
        stages = [PipelineStage(m, n, parts, worker.device, group=groups[0]) for n, m in self.modules.items()]
        for stage in stages:
            self._watch(stage)
        self.schedule = SCHEDULES[point.schedule](
            stages[0] if point.schedule in ONE_STAGE else stages,
            point.micro_batches,
            scale_grads=scale_grads,
            loss_fn=loss_of if self.training else None,
        )

    def _watch(self, stage: PipelineStage) -> None:
        """Have the tape record when the schedule runs a stage forward and backward."""
        for kind, name in _WATCHED.items():
            setattr(stage, name, self.tape.with_span(kind, stage.stage_index, getattr(stage, name)))

    def run(self, keep_outputs: bool = False) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Run all micro-batches through; return the outputs (on the last rank, if kept) and the losses (there)."""
        inputs = (self.tokens,) if self.first else ()
        losses: list[torch.Tensor] = []
        if self.training:
            target = {"target": self.labels, "losses": losses} if self.last else {}
            return self.schedule.step(*inputs, return_outputs=keep_outputs, **target), losses
        with torch.set_grad_enabled(self.keeps_activations):
            return self.schedule.step(*inputs, return_outputs=keep_outputs), losses

    def step(self) -> list[torch.Tensor]:
        """One step as training does it: forward and backward of all micro-batches, then AdamW; or forward only."""
        _, losses = self.run()
        if self.training:
            self._update(-1)
        return losses

    def _update(self, _micro_batch: int) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


class HandPipe(Pipe):
    """The same stage, run by the lesson's own loop in training: under GPipe, 1F1B, or a student's lists of steps."""

    def _schedule(self, worker: Worker, point: SimpleNamespace, groups: Any, parts: int, scale_grads: bool) -> None:
        plan, self.count = worker.plan, point.micro_batches
        if point.schedule == YOURS:
            names = load_function(Path(plan.yours), "one_f_one_b")(worker.rank, point.ranks, self.count)
            self.steps = [Step(name[0], worker.rank, int(name[1:])) for name in names]
        else:
            self.steps = order_of(point.schedule, point.ranks, self.count)[worker.rank]
        shape = torch.Size((plan.batch // self.count, plan.sequence, plan.hidden))
        self.link = Link(worker.rank, point.ranks, shape, worker.device, groups)

    def run(self, keep_outputs: bool = False) -> tuple[None, list[torch.Tensor]]:
        (stage,) = self.modules.values()
        tokens, labels = self.tokens.chunk(self.count), self.labels.chunk(self.count)
        return None, run_steps(self.steps, stage, self.link, tokens, labels, self.tape)
