"""What plans that train share: strategies, precisions, and how often a step is timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan

STRATEGIES = ("single", "ddp", "fsdp_grad", "fsdp_full", "fsdp_root")


ZERO = ("zero1", "zero2", "zero3")  # DeepSpeed's, where it is installed


TRAINING_PRECISIONS = ("float32", "tf32", "autocast", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Training(Plan):
    """What plans that train share: how often a step is timed, and what a point may set.

    A point sets strategy (single: every rank alone, nothing is exchanged), ranks (GPUs used; others idle), batch (over
    all ranks, a step), precision (autocast: bfloat16 products over float32 weights; bfloat16: weights, too, with
    float32 copies in the optimizer), fused (AdamW in one kernel) and compiled.
    """

    least: ClassVar[int] = 2

    warm_ups: int = 3
    repeats: int = 8

    def validate(self) -> None:
        if min(self.warm_ups, self.repeats) < 1:
            raise PlanError(f"warm_ups={self.warm_ups}, repeats={self.repeats}: at least 1 each")
        for knobs in self.knobs():
            self.require("strategy", knobs["strategy"], STRATEGIES + ZERO)
            self.require("precision", knobs["precision"], TRAINING_PRECISIONS)
            if not 1 <= knobs["ranks"] <= self.gpus:
                raise PlanError(f"ranks={knobs['ranks']}: this plan has {self.gpus} GPUs")
            if knobs["batch"] < 1 or knobs["batch"] % knobs["ranks"]:
                raise PlanError(f"batch={knobs['batch']} does not divide among {knobs['ranks']} ranks")
