"""Knobs of lab 14: all-reduces and training steps over two nodes, by the rate of the link between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from labkit.engine.errors import PlanError
from labkit.engine.launch_settings import cluster_or_namespaces
from labkit.engine.plan import Plan
from labkit.plans import TransformerPlan
from labkit.theory.transformer import SIZES

PLACES = ("inside", "between", "flat", "hierarchical")
STRATEGIES = ("alone", "ddp", "fsdp", "hsdp")
UNSHAPED = 0  # in the place of a rate: the link as it is
RATES_MBIT = (1000, 300, 100)
_BUCKET_MB = 25.0  # torch's own


def on_a_cluster() -> bool:
    """Return whether launches go to a cluster's nodes, so that their GPUs count and their links stay as they are."""
    return cluster_or_namespaces() != "namespaces"


def _rates() -> tuple[int, ...]:
    """Return the rates of a small run: the fastest and the slowest."""
    return (UNSHAPED,) if on_a_cluster() else RATES_MBIT[::2]


class OverNodes(Plan):
    """What every plan of this lab shares: its workers are on nodes, and a link between nodes may be shaped.

    `link_mbit` lists rates in Mbit/s; 0 leaves the link as it is. Only the link between two namespaces of one machine
    can be shaped. GPUs are used on a cluster alone: two namespaces of one machine would share them.
    """

    lab: ClassVar[str] = "beyond_the_node"
    worker: ClassVar[str] = "lessons.beyond_the_node.worker"
    least: ClassVar[int] = 2
    several_nodes: ClassVar[bool] = True

    link_mbit: Any

    @classmethod
    def on_gpus(cls) -> bool:
        return on_a_cluster() and super().on_gpus()

    @classmethod
    def small(cls, **knobs: Any) -> Self:
        return super().small(**{"link_mbit": _rates()} | knobs)

    @classmethod
    def sized(cls, size: str = "auto", **knobs: Any) -> Self:
        """Return the small plan for size="full", too, where GPUs are there but in two namespaces do not count."""
        alone = size == "full" and super().on_gpus() and not on_a_cluster()
        return super().sized("small" if alone else size, **knobs)

    def require_rates(self) -> None:
        """Raise PlanError unless the rates are whole numbers, 0 or more."""
        if not self.link_mbit or not all(isinstance(rate, int) and rate >= 0 for rate in self.link_mbit):
            raise PlanError(
                f"link_mbit={self.link_mbit!r}: give rates in Mbit/s, such as (1000, 100); 0 shapes nothing"
            )


@dataclass(frozen=True, kw_only=True)
class Messages(OverNodes):
    """All-reduces by size, place and rate of the link.

    place: "inside" (all ranks of a node), "between" (one rank per node), "flat" (all ranks, one call), "hierarchical"
    (reduce-scatter inside, all-reduce between, all-gather inside), "yours" (where `yours` is the file of a
    `hierarchical_all_reduce` that somebody wrote).
    """

    SMALL: ClassVar[dict[str, Any]] = {"kib": (64, 256, 1024), "warm_ups": 1, "repeats": 2}
    FEW: ClassVar[int | None] = 2

    link_mbit: tuple[int, ...] = (UNSHAPED,)
    kib: tuple[int, ...] = (64, 256, 1024, 4096, 16384, 65536, 262144)
    warm_ups: int = 2
    repeats: int = 7
    yours: str = ""

    def validate(self) -> None:
        self.require_rates()
        if self.gpus < 2 or min(self.kib) < 1:
            raise PlanError(f"gpus={self.gpus}, kib={self.kib}: two workers or more, and 1 KiB or more")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for kib in self.kib:
            yield {"place": "inside", "link_mbit": UNSHAPED, "kib": kib}
        for rate in self.link_mbit:
            for place in (*PLACES[1:], *(["yours"] if self.yours else [])):
                for kib in self.kib:
                    yield {"place": place, "link_mbit": rate, "kib": kib}


@dataclass(frozen=True, kw_only=True)
class TrainingOverNodes(OverNodes, TransformerPlan):
    """What the plans of training share: the course's transformer, and a shape that suits the size.

    `samples` are per rank and micro-batch.
    """

    SMALL: ClassVar[dict[str, Any]] = {"samples": 4, "repeats": 2, "layers": 2, "vocabulary": 250}
    FULL: ClassVar[dict[str, Any]] = dict(zip(("hidden", "inner", "layers", "heads"), SIZES["medium"], strict=True))

    link_mbit: tuple[int, ...] = (UNSHAPED,)

    def validate(self) -> None:
        super().validate()
        self.require_rates()


@dataclass(frozen=True, kw_only=True)
class Strategies(TrainingOverNodes):
    """A step under each strategy and rate; DDP also with accumulated micro-batches and with buckets of other sizes.

    "alone" sends nothing: its step is what the ranks compute. "fsdp" shards over all ranks, "hsdp" inside each node.
    """

    SMALL: ClassVar[dict[str, Any]] = {"buckets_mb": (0.1, 0.5)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"strategy": STRATEGIES}

    strategies: tuple[str, ...] = STRATEGIES
    accumulation: tuple[int, ...] = (1, 4)
    buckets_mb: tuple[float, ...] = (1, 100)

    def knobs(self) -> Iterator[dict[str, Any]]:
        if "alone" in self.strategies:
            for count in self.accumulation:
                yield self.setting("alone", UNSHAPED, count)
        for rate in self.link_mbit:
            for strategy in [name for name in self.strategies if name != "alone"]:
                yield self.setting(strategy, rate)
            if "ddp" in self.strategies:
                yield from (self.setting("ddp", rate, count) for count in self.accumulation if count > 1)
                yield from (self.setting("ddp", rate, bucket_mb=size) for size in self.buckets_mb)

    @staticmethod
    def setting(strategy: str, rate: int, accumulation: int = 1, bucket_mb: float = _BUCKET_MB) -> dict[str, Any]:
        """Return a point's knobs; bucket_mb is 0 where there are no buckets."""
        size_mb = bucket_mb if strategy == "ddp" else 0.0
        return {"strategy": strategy, "link_mbit": rate, "accumulation": accumulation, "bucket_mb": size_mb}


@dataclass(frozen=True, kw_only=True)
class LocalSteps(TrainingOverNodes):
    """Trainings that exchange gradients in every step (every=1), or weights once every so many steps.

    Between exchanges each rank takes steps of AdamW by itself. An outer SGD with Nesterov momentum then moves the
    shared weights by the mean of what the ranks have moved (Douillard and others, "DiLoCo", 2023).
    """

    SMALL: ClassVar[dict[str, Any]] = {"steps": 32}

    every: tuple[int, ...] = (1, 4, 16)
    steps: int = 256
    rate: float = 3e-3
    outer_rate: float = 0.7
    outer_momentum: float = 0.9

    def knobs(self) -> Iterator[dict[str, Any]]:
        for every in self.every:
            if not (1 <= every <= self.steps and self.steps % every == 0):
                raise PlanError(f"every={every}: it must divide steps={self.steps}, so that the last step exchanges")
            yield {"every": every, "link_mbit": self.link_mbit[0]}

    def validate(self) -> None:
        super().validate()
        list(self.knobs())

    @classmethod
    def small(cls, **knobs: Any) -> Self:
        rates = (UNSHAPED,) if on_a_cluster() else (RATES_MBIT[1],)
        return super().small(**{"link_mbit": rates} | knobs)
