"""What plans of several lessons share: how often a step is timed, what a point may set, the course's transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.theory.shapes import Model
from labkit.theory.step_memory import Shape
from labkit.theory.transformer import CONFIGURATIONS, SIZES, SMALL_SEQUENCE, SMALL_VOCABULARY, VOCABULARY, transformer

STRATEGIES = ("single", "ddp", "fsdp_grad", "fsdp_full", "fsdp_root")
ZERO = ("zero1", "zero2", "zero3")  # DeepSpeed's, where it is installed
TRAINING_PRECISIONS = ("float32", "tf32", "autocast", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Plan):
    """What plans that train share: how often a step is timed, and what a point may set.

    A point sets strategy (single: every rank alone, nothing is exchanged), ranks (GPUs used; others idle), batch (over
    all ranks, a step), precision (autocast: bfloat16 products over float32 weights; bfloat16: weights, too, with
    float32 copies in the optimizer), fused (AdamW in one kernel) and compiled.
    """

    least: ClassVar[int] = 2
    ALLOWED: ClassVar[dict[str, tuple]] = {"strategy": STRATEGIES + ZERO, "precision": TRAINING_PRECISIONS}

    warm_ups: int = 3
    repeats: int = 8

    def validate(self) -> None:
        if min(self.warm_ups, self.repeats) < 1:
            raise PlanError(f"warm_ups={self.warm_ups}, repeats={self.repeats}: at least 1 each")
        for knobs in self.knobs():
            if not 1 <= knobs["ranks"] <= self.gpus:
                raise PlanError(f"ranks={knobs['ranks']}: this plan has {self.gpus} GPUs")
            if knobs["batch"] < 1 or knobs["batch"] % knobs["ranks"]:
                raise PlanError(f"batch={knobs['batch']} does not divide among {knobs['ranks']} ranks")


def smaller_than(name: str) -> dict[str, dict[str, Any]]:
    """Return the course's sizes below this one, the largest first, as a TransformerPlan's MIDDLE."""
    smaller = [*SIZES][: [*SIZES].index(name)]
    return {size: dict(zip(("hidden", "inner", "layers", "heads"), SIZES[size], strict=True)) for size in smaller[::-1]}


@dataclass(frozen=True, kw_only=True)
class TransformerPlan(Plan):
    """The course's transformer, XL unless told otherwise, with a batch of its own on each rank."""

    least: ClassVar[int] = 2
    SMALL: ClassVar[dict[str, Any]] = {"hidden": 64, "inner": 256, "layers": 3, "heads": 4, "warm_ups": 1} | {
        "vocabulary": SMALL_VOCABULARY,
        "sequence": SMALL_SEQUENCE,
    }
    FEW: ClassVar[int | None] = 2

    hidden: int = CONFIGURATIONS["xl"]["d_model"]
    inner: int = CONFIGURATIONS["xl"]["d_ff"]
    layers: int = CONFIGURATIONS["xl"]["num_layers"]
    heads: int = CONFIGURATIONS["xl"]["num_heads"]
    vocabulary: int = VOCABULARY
    sequence: int = 128
    samples: int = 2  # a rank and step
    warm_ups: int = 2
    repeats: int = 5

    def validate(self) -> None:
        if self.hidden % (2 * self.heads):
            raise PlanError(f"hidden={self.hidden} does not divide into heads={self.heads} of an even width")
        if min(self.samples, self.warm_ups, self.repeats) < 1:
            raise PlanError(f"samples={self.samples}, warm_ups={self.warm_ups}, repeats={self.repeats}: at least 1")

    @property
    def model(self) -> Model:
        """The model as its parameters' shapes."""
        return transformer(self.hidden, self.inner, self.layers, self.vocabulary)

    def shape(self, precision: str = "float32") -> Shape:
        """The model and a rank's batch, as the ledger of a step takes them; precision is one of TRAINING_PRECISIONS."""
        multiplied = "bfloat16" if precision == "autocast" else "float32"
        sizes = (self.vocabulary, self.hidden, self.inner, self.layers, self.heads)
        return Shape(*sizes, self.samples, self.sequence, multiplied, self.device == "cuda")
