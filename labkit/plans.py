"""What plans of several lessons share: how often a step is timed, what a point may set, and two models' sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.theory import gpt
from labkit.theory.shapes import Model
from labkit.theory.step_memory import Shape
from labkit.theory.transformer import CONFIGURATIONS, SIZES, SMALL_SEQUENCE, SMALL_VOCABULARY, VOCABULARY, transformer

STRATEGIES = ("single", "ddp", "fsdp_grad", "fsdp_full", "fsdp_root")
_ROWS = 128  # a padded vocabulary is a multiple of it, so that tensor cores need no remainder
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


def smaller_gpts(**knobs: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Return the sizes of GPT-2 below a plan's full one, by name.

    First fewer and fewer sequences at a time, then smaller models with as many. `knobs` have a value for each step;
    the first ones are the full size's.
    """
    steps = [dict(zip(knobs, values, strict=True)) for values in zip(*knobs.values(), strict=True)] or [{}]
    sizes = {}
    for model, step in product(("GPT-2 Large", "GPT-2 medium", "GPT-2 small"), steps):
        shape = dict(zip(("layers", "hidden", "heads"), gpt.SIZES[model], strict=True))
        sizes[", ".join([model, *(f"{name}={value}" for name, value in step.items())])] = shape | step
    return dict([*sizes.items()][1:])


@dataclass(frozen=True, kw_only=True)
class GptPlan(TrainingPlan):
    """GPT-2 Large, unless told otherwise: `batch` sequences per step over all ranks, `micro_batch` of them at a time.

    A point adds micro_batch and micro_batches (accumulated per step), attention (plain, or torch's fused kernels),
    vocabulary (rows of the embedding) and synced (whether every micro-batch exchanges gradients, the last, or as a
    student's functions do).
    `compiled` is "no", "blocks" (one graph for all of them, and one for the head), "whole", or "by hand": a step
    that is written out, and needs no compiler; "by hand, float8" multiplies the blocks' matrices in float8.
    """

    SMALL: ClassVar[dict[str, Any]] = {"layers": 3, "hidden": 96, "heads": 3, "words": 500, "sequence": 32} | {
        "batch": 16,
        "micro_batch": 4,
        "precision": "float32",
        "warm_ups": 1,
        "repeats": 3,
    }
    ALLOWED: ClassVar[dict[str, tuple]] = {
        "attention": ("plain", "fused"),
        "synced": ("every", "last", "yours"),
        "compiled": ("no", "blocks", "whole", "by hand", "by hand, float8"),
    }
    FEW: ClassVar[int | None] = 2

    layers: int = 36
    hidden: int = 1280
    heads: int = 20
    words: int = gpt.VOCABULARY
    sequence: int = 1024
    batch: int = 32
    micro_batch: int = 8
    precision: str = "bfloat16"
    warm_ups: int = 3
    repeats: int = 6

    def validate(self) -> None:
        if self.hidden % self.heads:
            raise PlanError(f"hidden={self.hidden} does not divide into heads={self.heads}")
        super().validate()
        for knobs in self.knobs():
            if knobs["batch"] != (whole := knobs["ranks"] * knobs["micro_batch"]) * knobs["micro_batches"]:
                raise PlanError(f"batch={knobs['batch']} is no multiple of ranks × micro_batch, {whole}")

    @property
    def of_the_report(self) -> bool:
        """Whether the model is the report's."""
        return (self.layers, self.hidden, self.heads) == gpt.SIZES["GPT-2 Large"]

    def model(self, vocabulary: int) -> Model:
        """The model as its parameters' shapes, with `vocabulary` rows in its embedding."""
        return gpt.gpt(self.layers, self.hidden, vocabulary, self.sequence)

    def setting(
        self,
        strategy: str = "single",
        ranks: int = 1,
        *,
        micro_batch: int = 0,
        batch: int = 0,
        precision: str = "",
        fused: bool = True,
        compiled: str | None = None,
        attention: str = "fused",
        pad: bool = True,
        synced: str = "last",
        times: int = 1,
    ) -> dict[str, Any]:
        """Return a point's knobs; without a batch, `times` micro-batches per rank. CPUs do not compile (slow)."""
        micro = micro_batch or self.micro_batch
        batch = batch or micro * ranks * times
        sizes = {"strategy": strategy, "ranks": ranks, "batch": batch, "micro_batch": micro}
        sizes |= {"micro_batches": batch // (micro * ranks), "precision": precision or self.precision, "fused": fused}
        compiled = (compiled or "blocks") if self.device == "cuda" else "no"
        rows = -(-self.words // _ROWS) * _ROWS if pad else self.words
        return sizes | {"compiled": compiled, "attention": attention, "synced": synced, "vocabulary": rows}

    def needed_capability(self, point: SimpleNamespace) -> tuple[int, int]:
        """Ampere's of a step by hand, whose kernels read bfloat16, and Ada's of products in float8."""
        by_hand = {"by hand": (8, 0), "by hand, float8": (8, 9)}
        return by_hand.get(point.compiled, (0, 0))

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return gpt.needed_bytes(self.layers, self.hidden, self.heads, self.sequence, point)

    def forecast(self, row: Mapping[str, Any]) -> dict[str, int]:
        """Return the bytes that a rank should hold at the fullest moment, by item; for one precision throughout."""
        point = SimpleNamespace(**row)
        size, _ = gpt.bytes_per_parameter(point.precision)
        sizes = (self.layers, self.hidden, self.heads, point.vocabulary, point.micro_batch, self.sequence, size)
        return gpt.held(self.model(point.vocabulary), point, gpt.activations(*sizes))
