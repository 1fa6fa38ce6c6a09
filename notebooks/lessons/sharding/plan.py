"""Knobs of lab 05: GPT-2 under each strategy, accumulation, profiles and trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.plan import Plan
from labkit.plans import GptPlan, smaller_gpts
from labkit.theory.gpt import forward_bytes
from labkit.theory.memory import compared_bytes

VARIANTS = ("right", "root_only", "synced_every_time", "undivided")
_WRONG = {"root_only": {"strategy": "fsdp_root"}, "synced_every_time": {"synced": "every"}}
_FEWER = smaller_gpts(micro_batch=(8, 4, 2, 1))


@dataclass(frozen=True, kw_only=True)
class Sharding(GptPlan):
    """What this lab's trainings share; `yours` is the file of a student's `shard_units` and `add_gradients`."""

    lab: ClassVar[str] = "sharding"
    worker: ClassVar[str] = "lessons.sharding.worker"

    yours: str = ""


@dataclass(frozen=True, kw_only=True)
class Strategies(Sharding):
    """Every strategy on all GPUs, interleaved: `large` sequences each, and the report's batch; two on fewer GPUs."""

    SMALL: ClassVar[dict[str, Any]] = {"large": 4, "batch": 8, "micro_batch": 2, "seeds": (0,)}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = smaller_gpts(
        large=(48, 32, 24, 16, 12, 8, 6, 4, 2, 1), micro_batch=(8, 8, 8, 8, 8, 4, 4, 2, 1, 1)
    )

    strategies: tuple[str, ...] = ("ddp", "fsdp_full", "fsdp_grad", "fsdp_root")
    large: int = 48
    seeds: tuple[int, ...] = (0, 1, 2)
    warm_ups: int = 2
    repeats: int = 5

    def knobs(self) -> Iterator[dict[str, Any]]:
        counts = [n for n in (1, 2, 4, 8) if n <= self.gpus]
        for ranks in counts:
            strategies = self.strategies if ranks == counts[-1] else self.strategies[:2]
            for strategy in strategies if ranks > 1 else ("single",):
                yield self.setting(strategy, ranks, micro_batch=self.large) | {"load": "large"}
                if ranks in (1, counts[-1]):
                    micro = min(self.micro_batch, self.batch // ranks)
                    yield self.setting(strategy, ranks, micro_batch=micro, batch=self.batch) | {"load": "shared out"}


@dataclass(frozen=True, kw_only=True)
class Accumulation(Sharding):
    """Gradients exchanged after every micro-batch, or once per step; and as the student's functions do it."""

    SMALL: ClassVar[dict[str, Any]] = {"micro_batch": 2, "layers": 2}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _FEWER

    strategies: tuple[str, ...] = ("ddp", "fsdp_full")
    times: tuple[int, ...] = (2, 4)  # micro-batches per step; the report's step has 2
    warm_ups: int = 2

    def knobs(self) -> Iterator[dict[str, Any]]:
        for times, strategy, synced in product(self.times, self.strategies, ("every", "last")):
            yield self.setting(strategy, self.gpus, times=times, synced=synced)
        for times in self.times if self.yours else ():
            yield self.setting("fsdp_full", self.gpus, times=times, synced="yours")


@dataclass(frozen=True, kw_only=True)
class AsReported(Sharding):
    """The report's own comparison: plain attention, float32, nothing compiled, 32 sequences per step, 8 at a time."""

    SMALL: ClassVar[dict[str, Any]] = {"layers": 2, "batch": 8, "micro_batch": 2}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _FEWER

    strategies: tuple[str, ...] = ("single", "ddp", "fsdp_grad", "fsdp_full")
    precision: str = "float32"
    warm_ups: int = 1
    repeats: int = 3

    def knobs(self) -> Iterator[dict[str, Any]]:
        plain: dict[str, Any] = {"fused": False, "compiled": "no", "attention": "plain", "pad": False}
        for strategy in self.strategies:
            ranks = 1 if strategy == "single" else self.gpus
            micro_batch = min(self.micro_batch, self.batch // ranks)
            batch = self.batch - self.batch % (ranks * micro_batch)
            yield self.setting(strategy, ranks, micro_batch=micro_batch, batch=batch, **plain) | {"load": "report"}


@dataclass(frozen=True, kw_only=True)
class Profiles(Sharding):
    """One micro-batch per rank under the profiler, and once more without communication."""

    SMALL: ClassVar[dict[str, Any]] = {"layers": 2, "repeats": 3}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _FEWER

    strategies: tuple[str, ...] = ("single", "ddp", "fsdp_grad", "fsdp_full")
    warm_ups: int = 2
    repeats: int = 4

    def knobs(self) -> Iterator[dict[str, Any]]:
        for strategy in self.strategies:
            yield self.setting(strategy, self.gpus)


@dataclass(frozen=True, kw_only=True)
class Timeline(Sharding):
    """Three steps with every allocation remembered."""

    least: ClassVar[int] = 1
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _FEWER
    iterations: int = 3

    def knobs(self) -> Iterator[dict[str, Any]]:
        yield self.setting()


@dataclass(frozen=True, kw_only=True)
class Links(Plan):
    """What the collectives of these strategies take alone, by size and number of ranks."""

    lab: ClassVar[str] = "sharding"
    worker: ClassVar[str] = "lessons.sharding.worker"
    SMALL: ClassVar[dict[str, Any]] = {"sizes_kib": (16, 256, 1024, 4096), "repeats": 5}
    FEW: ClassVar[int | None] = 2
    least: ClassVar[int] = 2

    sizes_kib: tuple[int, ...] = (64, 1024, 8192, 32768, 131072, 524288)
    collectives: tuple[str, ...] = ("all-reduce", "all-gather", "reduce-scatter")
    warm_ups: int = 3
    repeats: int = 10

    def knobs(self) -> Iterator[dict[str, Any]]:
        counts = [n for n in (2, 4, 8) if n <= self.gpus]
        for ranks, collective, size in product(counts, self.collectives, self.sizes_kib):
            yield {"collective": collective, "ranks": ranks, "kib": size}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return 1024 * point.kib * (1 + 1 / point.ranks)  # the whole and a rank's part


@dataclass(frozen=True, kw_only=True)
class Trial(Sharding):
    """Strategies that accumulate, beside one process that sees the same batches at once; some have a bug."""

    SMALL: ClassVar[dict[str, Any]] = {"micro_batch": 2, "hidden": 48, "words": 200}
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": (*VARIANTS, "yours")}
    FULL: ClassVar[dict[str, Any]] = {"micro_batch": 2, "layers": 12, "hidden": 768, "heads": 12}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {"micro_batch=1": {"micro_batch": 1}}

    variants: tuple[str, ...] = ("right",)
    strategies: tuple[str, ...] = ("ddp", "fsdp_grad", "fsdp_full", "fsdp_root")
    times: int = 3
    precision: str = "float32"
    sequence: int = 64
    steps: int = 3
    warm_ups: int = 1
    repeats: int = 1

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            for strategy in self.strategies if variant == "right" else ("fsdp_full",):
                point = self.setting(strategy, self.gpus, times=self.times, compiled="no")
                yield point | _WRONG.get(variant, {}) | {"variant": variant}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        whole = 4 * self.model(point.vocabulary).parameters
        forward = forward_bytes(self.layers, self.hidden, self.heads, self.sequence, point, point.batch)
        return compared_bytes(whole, forward)
