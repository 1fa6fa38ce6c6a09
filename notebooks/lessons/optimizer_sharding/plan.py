"""Knobs of lab 11: optimizers that keep whole states or a share of them; their memory, their time, and trials."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.plans import TransformerPlan, smaller_than
from labkit.theory.sizes import MIB
from lessons.optimizer_sharding.theory import needed_bytes

WAYS = ("unsharded", "zero_redundancy", "zero_buckets", "sharded")  # the middle two are torch's
ZERO = "zero1"  # the reference solution of `update_all`
YOURS = {"your_momentum": "momentum_step", "your_zero": "update_all"}  # ways, and the function that somebody wrote
OUR_BUCKETS = ("sharded", ZERO, *YOURS)
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad")
KERNELS = ("foreach", "fused")  # torch's usual dozen of kernels over many tensors, or one that does it all
CASES = (
    "plain",
    "groups",
    "added_group",
    "scheduler",
    "closure",
    "frozen",
    "unfrozen",
    "no_gradient",
    "kept_gradients",
    "tied",
    "to_plain",
    "from_plain",
    "other_ranks",
)
VARIANTS = ("right", "sends_nothing", "own_part", "stale_rate")
_TINY: dict[str, Any] = {
    "hidden": 16,
    "inner": 32,
    "layers": 2,
    "heads": 2,
    "vocabulary": 96,
    "sequence": 8,
    "bucket_mib": 0.01,
}


@dataclass(frozen=True, kw_only=True)
class Sharding(TransformerPlan):
    """What every plan of this lab shares: the course's transformer, and how its optimizer is shared out.

    A point sets way, optimizer, kernel and bucket_mib (of the ways with our buckets; others have none: 0).
    """

    lab: ClassVar[str] = "optimizer_sharding"
    worker: ClassVar[str] = "lessons.optimizer_sharding.worker"
    SMALL: ClassVar[dict[str, Any]] = {"bucket_mib": 0.25, "repeats": 3}
    ALLOWED: ClassVar[dict[str, tuple]] = {
        "way": (*WAYS, ZERO, *YOURS),
        "optimizer": OPTIMIZERS,
        "kernel": KERNELS,
    }

    bucket_mib: float = 512

    def validate(self) -> None:
        super().validate()
        for knobs in self.knobs():
            if knobs["way"] in OUR_BUCKETS and knobs["bucket_mib"] <= 0:
                raise PlanError(f"bucket_mib={knobs['bucket_mib']}: set a size above 0")

    def setting(self, way: str, optimizer: str = "adamw", kernel: str = "foreach") -> dict[str, Any]:
        """Return a point's knobs."""
        bucket_mib = self.bucket_mib if way in OUR_BUCKETS else 0
        return {"way": way, "optimizer": optimizer, "kernel": kernel, "bucket_mib": bucket_mib}


@dataclass(frozen=True, kw_only=True)
class LargeModel(Sharding):
    """What the plans share that train XL, or the largest of the course's sizes that fits."""

    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = smaller_than("xl")

    def needed_bytes(self, point: SimpleNamespace) -> float:
        sizes = [math.prod(shape) for shape in self.model.shapes]
        knobs = {"optimizer": point.optimizer, "kernel": point.kernel, "bucket_bytes": MIB * point.bucket_mib}
        return needed_bytes(sizes, point.way, self.gpus, self.shape().kept, **knobs)


@dataclass(frozen=True, kw_only=True)
class Memory(LargeModel):
    """What a rank holds when all is built, and before and after each of two updates; every way, with both kernels."""

    ways: tuple[str, ...] = WAYS
    kernels: tuple[str, ...] = KERNELS

    def knobs(self) -> Iterator[dict[str, Any]]:
        for kernel in self.kernels:
            for way in self.ways:
                yield self.setting(way, kernel=kernel)


@dataclass(frozen=True, kw_only=True)
class Steps(LargeModel):
    """Whole steps and updates timed, every way one after another, round after round (a round is a seed)."""

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,), "timed": (("adamw", "foreach"),)}

    seeds: tuple[int, ...] = (0, 1)
    ways: tuple[str, ...] = WAYS
    timed: tuple[tuple[str, str], ...] = (("adamw", "foreach"), ("adamw", "fused"), ("momentum", "foreach"))

    def knobs(self) -> Iterator[dict[str, Any]]:
        for optimizer, kernel in self.timed:
            for way in self.ways:
                yield self.setting(way, optimizer, kernel)


@dataclass(frozen=True, kw_only=True)
class Exchanges(LargeModel):
    """From each rank's own gradients to new weights on all ranks, timed: whatever a way sends is in it.

    SGD with momentum. `momentum_step` and `update_all` are files of these functions that somebody wrote; each is a way
    more.
    """

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,)}

    seeds: tuple[int, ...] = (0, 1)
    ways: tuple[str, ...] = ("unsharded", "zero_buckets", "sharded", ZERO)
    momentum_step: str = ""
    update_all: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for way in (*self.ways, *(way for way, function in YOURS.items() if getattr(self, function))):
            yield self.setting(way, "momentum")


@dataclass(frozen=True, kw_only=True)
class Equality(Sharding):
    """Ten steps beside the optimizer that shards nothing, on equal gradients: each optimizer, then each case.

    `update_all` is the file of this method that somebody wrote. Its optimizer is one way more, in all cases but
    "other_ranks": on some of the ranks it averages the gradients of these alone.
    """

    SMALL: ClassVar[dict[str, Any]] = _TINY
    FULL: ClassVar[dict[str, Any]] = _TINY | {"samples": 2}  # equality asks for no large model
    ALLOWED: ClassVar[dict[str, tuple]] = {"case": CASES}

    cases: tuple[str, ...] = CASES
    optimizers: tuple[str, ...] = OPTIMIZERS
    ways: tuple[str, ...] = ("sharded",)
    steps: int = 10
    update_all: str = ""

    def validate(self) -> None:
        super().validate()
        if self.gpus < 2:
            raise PlanError(f"gpus={self.gpus}: nothing can be shared out to fewer than 2")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for way in (*self.ways, *["your_zero"][: bool(self.update_all)]):
            for optimizer in self.optimizers:
                yield self.setting(way, optimizer) | {"case": "plain"}
            for case in self.cases:
                if case != "plain" and (way == "sharded" or case != "other_ranks"):
                    yield self.setting(way, "adamw") | {"case": case}


@dataclass(frozen=True, kw_only=True)
class Trial(Sharding):
    """Sharded optimizers, some with a bug in them, beside the optimizer that shards nothing."""

    SMALL: ClassVar[dict[str, Any]] = _TINY
    FULL: ClassVar[dict[str, Any]] = _TINY  # a bug needs no large model to show
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    steps: int = 5

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield self.setting("sharded", "adamw") | {"variant": variant}
