"""Knobs of lab 15: a transformer in units whose weights are sharded, by our classes and by torch's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.plans import TransformerPlan, smaller_than
from labkit.theory.step_memory import Shape
from lessons.fsdp_from_scratch.theory import STRATEGIES, UNITS, ledger

PRECISIONS = ("float32", "bfloat16")
CASES = (
    "plain",
    "tied",
    "frozen",
    "frozen_embedding",
    "twice",
    "without_weights",
    "unused",
    "checkpointed",
    "accumulation",
    "no_sync",
    "two_backwards",
    "kept_whole",
    "far_ahead",
    "bfloat16",
)
VARIANTS = ("right", "averaged_twice", "not_gathered", "padding_counts")


@dataclass(frozen=True, kw_only=True)
class Sharding(TransformerPlan):
    """What every plan of this lab shares: the course's transformer, cut into units.

    A point sets strategy ("alone": every rank is a group of its own, so nothing is sent), unit, prefetch (units
    gathered ahead), precision ("bfloat16": of the gathered weights; shards stay float32) and samples, per rank.
    """

    lab: ClassVar[str] = "fsdp_from_scratch"
    worker: ClassVar[str] = "lessons.fsdp_from_scratch.worker.steps"
    SMALL: ClassVar[dict[str, Any]] = {"repeats": 3, "samples": 2}
    ALLOWED: ClassVar[dict[str, tuple]] = {
        "strategy": tuple(STRATEGIES),
        "unit": (*UNITS, ""),
        "precision": PRECISIONS,
    }
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = smaller_than("xl")

    sequence: int = 512
    samples: int = 4
    warm_ups: int = 3

    def setting(self, strategy: str, unit: str = "block", prefetch: int = 1, precision: str = "bfloat16", **more: Any):
        """Return a point's knobs; a strategy without units has none."""
        in_units = strategy != "ddp"
        knobs = {"strategy": strategy, "unit": unit if in_units else "", "prefetch": prefetch if in_units else 0}
        return knobs | {"precision": precision, "samples": self.samples} | more

    def shape_of(self, point: Any) -> Shape:
        """Return the model and the point's batch, as ledgers take them."""
        precision = "autocast" if point.precision == "bfloat16" else "float32"
        return self.shape(precision)._replace(samples=int(point.samples))

    def needed_bytes(self, point: SimpleNamespace) -> float:
        if not hasattr(point, "strategy"):
            return 0
        knobs = (point.strategy, point.unit, self.gpus, point.prefetch)
        return sum(ledger(self.shape_of(point), self.model, *knobs).values())


@dataclass(frozen=True, kw_only=True)
class Steps(Sharding):
    """Whole steps: ours with units of three sizes and 0, 1 and 2 units gathered ahead; torch's two; and nothing sent.

    `backward` is the file of a unit's two methods that somebody wrote; with it there is one strategy more.
    """

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,), "prefetches": (0, 1), "precisions": ("bfloat16",)}

    seeds: tuple[int, ...] = (0, 1)
    units: tuple[str, ...] = tuple(UNITS)
    prefetches: tuple[int, ...] = (0, 1, 2)
    precisions: tuple[str, ...] = PRECISIONS
    backward: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for precision in self.precisions:
            yield self.setting("alone", precision=precision)
            yield self.setting("ddp", precision=precision)
            for unit in self.units if precision == "bfloat16" else self.units[1:2]:
                yield self.setting("torch", unit, precision=precision)
                for prefetch in self.prefetches if unit != "model" else (0,):
                    yield self.setting("ours", unit, prefetch, precision)
            if self.backward:
                yield self.setting("yours", precision=precision)


@dataclass(frozen=True, kw_only=True)
class Batches(Sharding):
    """Steps with more and more samples, sent and not: from how many tokens on does computing hide the gathering?

    Four blocks as wide as those of a model of 70 billion parameters: in so few kernels the host is not what one waits
    for.
    """

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,), "batches": (1, 2, 4)}
    FULL: ClassVar[dict[str, Any]] = {"hidden": 8192, "inner": 28_672, "heads": 64, "layers": 4, "sequence": 128}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {
        f"width {hidden}": {"hidden": hidden, "inner": hidden // 2 * 7, "heads": hidden // 128}
        for hidden in (6144, 4096, 2048)
    }

    seeds: tuple[int, ...] = (0, 1, 2)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    strategies: tuple[str, ...] = ("alone", "torch", "ours")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for samples in self.batches:
            for strategy in self.strategies:
                yield self.setting(strategy, samples=samples)


@dataclass(frozen=True, kw_only=True)
class Timeline(Sharding):
    """The memory of one step, allocation by allocation: units kept whole, released, and gathered ahead."""

    SMALL: ClassVar[dict[str, Any]] = {"layers": 6}

    prefetches: tuple[int, ...] = (0, 2)

    def knobs(self) -> Iterator[dict[str, Any]]:
        yield self.setting("ours", prefetch=0, precision="float32", release=False)
        for prefetch in self.prefetches:
            yield self.setting("ours", prefetch=prefetch, precision="float32", release=True)


@dataclass(frozen=True, kw_only=True)
class Equality(Sharding):
    """A few steps of a small model in awkward cases, beside one process that sees every rank's samples.

    `clip` is the file of this method of the model that somebody wrote.
    """

    SMALL: ClassVar[dict[str, Any]] = {"steps": 3}
    FULL: ClassVar[dict[str, Any]] = {"steps": 3}  # equality asks for no large model
    ALLOWED: ClassVar[dict[str, tuple]] = {"case": CASES}

    cases: tuple[str, ...] = CASES
    steps: int = 3
    clip: str = ""

    def validate(self) -> None:
        super().validate()
        if self.gpus < 2:
            raise PlanError(f"gpus={self.gpus}: nothing can be shared out to fewer than 2")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for case in self.cases:
            yield {"case": case}


@dataclass(frozen=True, kw_only=True)
class Trial(Equality):
    """Units with one bug each, on the small model."""

    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    cases: tuple[str, ...] = ("plain",)

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield {"case": self.cases[0], "variant": variant}
