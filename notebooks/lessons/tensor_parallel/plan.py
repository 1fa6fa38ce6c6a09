"""Knobs of lab 16: a transformer whose layers are split over the ranks, by our classes and by torch's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.plans import TransformerPlan
from lessons.tensor_parallel.theory import STRATEGIES, held_elements, kept_bytes

CASES = ("plain", "tied", "biased", "sequence", "sequence_tied", "sequence_biased", "dropout", "sequence_dropout")
VARIANTS = ("right", "bias_everywhere", "not_summed", "same_mask")
_PARALLEL = ("tensor", "sequence")


@dataclass(frozen=True, kw_only=True)
class Splitting(TransformerPlan):
    """What every plan of this lab shares: the course's transformer, wide and shallow, in bfloat16 on a GPU.

    A point sets strategy and hidden (the width); inner is 3.5 widths, and on a GPU a head has 128 numbers. `samples`
    are those of a step per rank: who splits layers computes those of all ranks, together with the others.
    """

    lab: ClassVar[str] = "tensor_parallel"
    worker: ClassVar[str] = "lessons.tensor_parallel.worker.steps"
    SMALL: ClassVar[dict[str, Any]] = {"repeats": 3, "samples": 1, "hidden": 96, "inner": 336, "layers": 2} | {
        "heads": 12,  # these divide among 2, 3 and 4 ranks
        "sequence": 36,
        "vocabulary": 504,
    }
    FULL: ClassVar[dict[str, Any]] = {"hidden": 8192, "inner": 28_672, "heads": 64, "layers": 4, "sequence": 2048}
    ALLOWED: ClassVar[dict[str, tuple]] = {"strategy": (*STRATEGIES, "yours")}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {
        f"width {hidden}": {"hidden": hidden, "inner": hidden // 2 * 7, "heads": hidden // 128}
        for hidden in (4096, 2048)
    }

    samples: int = 1
    warm_ups: int = 3

    def chosen(self) -> dict[str, Any]:
        """Return as many workers as everything divides among, where their number was left open."""
        return {} if vars(self)["_given"]["gpus"] else {"gpus": self.most_that_divide()}

    def most_that_divide(self) -> int:
        """Return the largest number of workers, of those there are, that heads, words and positions divide among."""
        split = (self.heads, self.vocabulary, self.sequence)
        return max(count for count in range(1, self.gpus + 1) if not any(each % count for each in split))

    def validate(self) -> None:
        super().validate()
        if (most := self.most_that_divide()) < self.gpus:
            sizes = f"{self.heads} heads, {self.vocabulary} words and {self.sequence} positions"
            raise PlanError(f"gpus={self.gpus}: {sizes} do not all divide among them; take gpus={most}")

    @property
    def element_bytes(self) -> int:
        return 2 if self.device == "cuda" else 4

    def sizes(self, hidden: int) -> dict[str, int]:
        """Return the model's sizes at a width, in the plan's proportions."""
        return {
            "hidden": hidden,
            "inner": self.inner * hidden // self.hidden,
            "heads": max(1, self.heads * hidden // self.hidden // self.gpus) * self.gpus,
        }

    def shape_of(self, point: Any):
        """Return the model and the batch of a point that splits layers."""
        return self.shape()._replace(samples=self.samples * self.gpus, **self.sizes(int(point.hidden)))

    def needed_bytes(self, point: SimpleNamespace) -> float:
        if not hasattr(point, "strategy"):
            return 0
        shape, split = self.shape_of(point), point.strategy.split("_")[0] in (*_PARALLEL, "torch", "yours")
        ranks = self.gpus if split else 1
        weights = held_elements(shape.hidden, shape.inner, shape.layers, shape.vocabulary, ranks)
        kept = kept_bytes(shape if split else shape._replace(samples=self.samples), ranks, False, self.element_bytes)
        logits = 3 * 4 * shape.tokens * shape.vocabulary / self.gpus
        return 5 * self.element_bytes * weights + kept + logits


@dataclass(frozen=True, kw_only=True)
class Steps(Splitting):
    """Whole steps of the same batch: replicas, shards, and split layers, by torch's classes and ours.

    `row` is the file of two functions that somebody wrote; with it there is one strategy more.
    """

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,)}

    seeds: tuple[int, ...] = (0, 1)
    strategies: tuple[str, ...] = tuple(STRATEGIES)
    row: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for strategy in (*self.strategies, *["yours"][: bool(self.row)]):
            yield {"strategy": strategy, "hidden": self.hidden}


@dataclass(frozen=True, kw_only=True)
class Widths(Splitting):
    """Narrow and wide layers, with what they send and without: which share of a step is sending?"""

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,), "widths": (48, 96, 192), "repeats": 4}
    FULL: ClassVar[dict[str, Any]] = {"samples": 4}

    seeds: tuple[int, ...] = (0, 1)
    widths: tuple[int, ...] = (1024, 2048, 4096, 8192)
    strategies: tuple[str, ...] = ("tensor", "tensor_silent", "sequence", "sequence_silent")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for hidden in self.widths:
            for strategy in self.strategies:
                yield {"strategy": strategy, "hidden": hidden}


@dataclass(frozen=True, kw_only=True)
class Equality(Splitting):
    """A few steps of a small split model beside one process that has whole layers.

    `loss` is the file of the function `parallel_loss` that somebody wrote.
    """

    _TINY: ClassVar[dict[str, Any]] = {"hidden": 24, "inner": 48, "heads": 12, "layers": 2, "sequence": 12}
    SMALL: ClassVar[dict[str, Any]] = _TINY | {"vocabulary": 36, "steps": 3}
    FULL: ClassVar[dict[str, Any]] = _TINY | {"vocabulary": 36, "steps": 3}  # equality asks for no large model
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {}
    ALLOWED: ClassVar[dict[str, tuple]] = {"case": CASES}

    cases: tuple[str, ...] = CASES
    steps: int = 3
    loss: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for case in self.cases:
            yield {"case": case}


@dataclass(frozen=True, kw_only=True)
class Trial(Equality):
    """Split layers with one bug each, on the small model."""

    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield {"case": "sequence_dropout" if variant == "same_mask" else "biased", "variant": variant}
