"""Knobs of lab 10: replicas that average their gradients in four ways of our own and in torch's way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.plans import TransformerPlan, smaller_than
from lessons.ddp_from_scratch.theory import needed_bytes

OURS = ("naive", "flat", "overlapped", "bucketed")
STRATEGIES = ("none", *OURS, "ddp")  # none sends nothing; ddp is torch's DistributedDataParallel
YOURS = {"your_flat": "exchange", "your_overlapped": "ready"}  # strategies, and the method that somebody wrote
_IN_BUCKETS = ("bucketed", "ddp")
_PRECISIONS = ("float32", "tf32", "autocast")
CASES = (
    "plain",
    "tied",
    "frozen",
    "unused",
    "unused_on_some",
    "buffers",
    "accumulation",
    "two_backwards",
    "kept_gradients",
    "uneven",
    "weighted",
    "no_samples",
    "bfloat16",
    "mixed",
)
VARIANTS = ("right", "one_rank", "one_bucket", "unwaited")
_TINY_MB = 0.0003  # so small that the probe's gradients fill several buckets


@dataclass(frozen=True, kw_only=True)
class Replicas(TransformerPlan):
    """What every plan of this lab shares: the transformer, and how its gradients are averaged.

    A point sets strategy, ranks, bucket_mb (MiB, like torch's option of that name; 0 for strategies without buckets)
    and precision ("autocast": bfloat16 products with float32 weights; gradients stay float32).
    """

    lab: ClassVar[str] = "ddp_from_scratch"
    worker: ClassVar[str] = "lessons.ddp_from_scratch.worker.steps"
    SMALL: ClassVar[dict[str, Any]] = {"bucket_mb": 0.25, "repeats": 3}
    ALLOWED: ClassVar[dict[str, tuple]] = {"strategy": STRATEGIES, "precision": _PRECISIONS}

    precision: str = "float32"
    bucket_mb: float = 25
    warm_ups: int = 3
    repeats: int = 6

    def validate(self) -> None:
        super().validate()
        for knobs in self.knobs():
            if knobs["strategy"] in _IN_BUCKETS and knobs["bucket_mb"] <= 0:
                raise PlanError(f"bucket_mb={knobs['bucket_mb']}: set a size above 0")

    def setting(self, strategy: str, bucket_mb: float = 0) -> dict[str, Any]:
        """Return a point's knobs; a strategy with buckets gets the plan's bucket size, or the one given here."""
        size_mb = (bucket_mb or self.bucket_mb) if strategy in _IN_BUCKETS else 0
        return {"strategy": strategy, "ranks": self.gpus, "bucket_mb": size_mb, "precision": self.precision}


@dataclass(frozen=True, kw_only=True)
class LargeModel(Replicas):
    """What the plans share that train XL, or the largest of the course's sizes that fits."""

    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = smaller_than("xl")

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return needed_bytes(self.shape(point.precision), point.strategy)


@dataclass(frozen=True, kw_only=True)
class Implementations(LargeModel):
    """Every strategy in turn, round after round: whole steps and their parts, memory, what is sent when.

    `samples` are per rank and `sequence` is the number of positions: samples=16 on 2 GPUs is a total batch of 32.
    `exchange` and `ready` are files of these methods that somebody wrote; each is a strategy more.
    """

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"strategy": (*STRATEGIES, *YOURS)}

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    strategies: tuple[str, ...] = STRATEGIES
    exchange: str = ""
    ready: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        yours = (strategy for strategy, method in YOURS.items() if getattr(self, method))
        yield from map(self.setting, (*self.strategies, *yours))


@dataclass(frozen=True, kw_only=True)
class Buckets(LargeModel):
    """Buckets of many sizes, in the same rounds as single gradients, a step that sends nothing, and torch's DDP.

    8000 puts all gradients but the first in one bucket: nothing hides its transfer.
    """

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,), "buckets_mb": (0.02, 0.1, 0.5, 2)}

    seeds: tuple[int, ...] = (0, 1, 2)
    buckets_mb: tuple[float, ...] = (1, 10, 25, 100, 250, 500, 1000, 2000, 8000)
    others: tuple[str, ...] = ("none", "overlapped", "ddp")

    def knobs(self) -> Iterator[dict[str, Any]]:
        yield from map(self.setting, self.others)
        for size in self.buckets_mb:
            yield self.setting("bucketed", size)


@dataclass(frozen=True, kw_only=True)
class Profiles(LargeModel):
    """One step of each strategy under the profiler."""

    strategies: tuple[str, ...] = STRATEGIES

    def knobs(self) -> Iterator[dict[str, Any]]:
        yield from map(self.setting, self.strategies)


@dataclass(frozen=True, kw_only=True)
class Equality(Replicas):
    """Our strategies in awkward cases, compared with one process that sees every rank's samples."""

    SMALL: ClassVar[dict[str, Any]] = {"bucket_mb": _TINY_MB, "steps": 2}
    ALLOWED: ClassVar[dict[str, tuple]] = {"strategy": OURS, "case": CASES}

    strategies: tuple[str, ...] = OURS
    cases: tuple[str, ...] = CASES
    bucket_mb: float = _TINY_MB
    steps: int = 3

    def knobs(self) -> Iterator[dict[str, Any]]:
        for case in self.cases:
            for strategy in self.strategies:
                yield self.setting(strategy) | {"case": case}


@dataclass(frozen=True, kw_only=True)
class Trial(Replicas):
    """Bucketed replicas whose last rank is late: correct ones, and some with a bug."""

    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    hidden: int = 256
    inner: int = 1024
    layers: int = 4
    heads: int = 4
    bucket_mb: float = 2
    late_ms: int = 300  # how much later than the others the last rank starts its backward

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield self.setting("bucketed") | {"variant": variant}
