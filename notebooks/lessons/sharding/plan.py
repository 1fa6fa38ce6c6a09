"""Knobs of lab 05: GPT-2 under each strategy, its step's speed, batches, accumulation, profiles and trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.plans import TrainingPlan
from labkit.theory.gpt import SIZES, VOCABULARY, gpt
from labkit.theory.memory import compared_bytes
from labkit.theory.shapes import Model
from lessons.sharding.theory import forward_bytes, needed_bytes

VARIANTS = ("right", "root_only", "synced_every_time", "undivided")
LADDER = {  # from the report's configuration up, a rung changes one knob and keeps the others; {}: as many as fit
    "float32": {"micro_batch": 0},
    "bfloat16 autocast": {"precision": "autocast"},
    "fused attention": {"attention": "fused"},
    "fused AdamW": {"fused": True},
    "torch.compile": {"compiled": "blocks"},
    "padded vocabulary": {"pad": True},
    "bfloat16 weights": {"precision": "bfloat16"},
    "larger micro-batch": {},
    "one graph": {"compiled": "whole"},
    "by hand": {"compiled": "by hand", "precision": "bfloat16"},
    "float8 products": {"compiled": "by hand, float8"},
}
_WRONG = {"root_only": {"strategy": "fsdp_root"}, "synced_every_time": {"synced": "every"}}
_COMPILED = ("no", "blocks", "whole", "by hand", "by hand, float8")
_ROWS = 128  # a padded vocabulary is a multiple of it, so that tensor cores need no remainder
_SMALL: dict[str, Any] = {"layers": 3, "hidden": 96, "heads": 3, "words": 500, "sequence": 32}
_SMALL |= {"batch": 16, "micro_batch": 4, "precision": "float32", "warm_ups": 1, "repeats": 3}


def _smaller(**knobs: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Return the sizes below the full one by name: fewer and fewer sequences at a time, then smaller models, as many.

    `knobs` have a value for each step; the first ones are the full size's.
    """
    steps = [dict(zip(knobs, values, strict=True)) for values in zip(*knobs.values(), strict=True)] or [{}]
    sizes = {}
    for model, step in product(("GPT-2 Large", "GPT-2 medium", "GPT-2 small"), steps):
        shape = dict(zip(("layers", "hidden", "heads"), SIZES[model], strict=True))
        sizes[", ".join([model, *(f"{name}={value}" for name, value in step.items())])] = shape | step
    return dict([*sizes.items()][1:])


_FEWER = _smaller(micro_batch=(8, 4, 2, 1))


@dataclass(frozen=True, kw_only=True)
class GptPlan(TrainingPlan):
    """GPT-2 Large, unless told otherwise: `batch` sequences per step over all ranks, `micro_batch` of them at a time.

    A point adds micro_batch and micro_batches (accumulated per step), attention (plain, or torch's fused kernels),
    vocabulary (rows of the embedding) and synced (whether every micro-batch exchanges gradients, the last, or as
    `yours` says, the file of a student's `shard_units` and `add_gradients`).
    `compiled` is "no", "blocks" (one graph for all of them, and one for the head), "whole", or "by hand": a step
    that is written out, and needs no compiler; "by hand, float8" multiplies the blocks' matrices in float8.
    """

    lab: ClassVar[str] = "sharding"
    worker: ClassVar[str] = "lessons.sharding.worker"
    SMALL: ClassVar[dict[str, Any]] = _SMALL
    ALLOWED: ClassVar[dict[str, tuple]] = {
        "attention": ("plain", "fused"),
        "synced": ("every", "last", "yours"),
        "compiled": _COMPILED,
    }
    FEW: ClassVar[int | None] = 2

    layers: int = 36
    hidden: int = 1280
    heads: int = 20
    words: int = VOCABULARY
    sequence: int = 1024
    batch: int = 32
    micro_batch: int = 8
    precision: str = "bfloat16"
    warm_ups: int = 3
    repeats: int = 6
    yours: str = ""

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
        return (self.layers, self.hidden, self.heads) == SIZES["GPT-2 Large"]

    def model(self, vocabulary: int) -> Model:
        """The model as its parameters' shapes, with `vocabulary` rows in its embedding."""
        return gpt(self.layers, self.hidden, vocabulary, self.sequence)

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
        return needed_bytes(self.layers, self.hidden, self.heads, self.sequence, point)


@dataclass(frozen=True, kw_only=True)
class Strategies(GptPlan):
    """Every strategy on all GPUs, interleaved: `large` sequences each, and the report's batch; two on fewer GPUs."""

    SMALL: ClassVar[dict[str, Any]] = {"large": 4, "batch": 8, "micro_batch": 2, "seeds": (0,)}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _smaller(
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
class Ladder(GptPlan):
    """One GPU, from the report's configuration up, one knob per rung; "one graph" (half a minute) only if named."""

    least: ClassVar[int] = 1
    SMALL: ClassVar[dict[str, Any]] = {"large": 8, "micro_batch": 2}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _smaller(
        large=(64, 48, 32, 24, 16, 12, 8, 6, 4, 2, 1), micro_batch=(8, 8, 8, 8, 4, 2, 2, 1, 1, 1, 1)
    )

    rungs: tuple[str, ...] = tuple(rung for rung in LADDER if rung != "one graph")
    large: int = 64
    warm_ups: int = 2
    repeats: int = 5

    def knobs(self) -> Iterator[dict[str, Any]]:
        knobs: dict[str, Any] = {
            "precision": "float32",
            "fused": False,
            "compiled": "no",
            "attention": "plain",
            "pad": False,
        }
        for rung in self.rungs:
            self.require("rung", rung, tuple(LADDER))
            knobs |= LADDER[rung] or {"micro_batch": self.large}
            if self.device == "cuda" or "compiled" not in LADDER[rung]:  # else it is the rung before, once more
                yield self.setting(**knobs) | {"knob": rung}


@dataclass(frozen=True, kw_only=True)
class Batches(GptPlan):
    """One GPU, more and more sequences at once, until they do not fit."""

    least: ClassVar[int] = 1
    SMALL: ClassVar[dict[str, Any]] = {"sizes": (1, 2, 4, 8)}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _smaller()

    sizes: tuple[int, ...] = (1, 4, 8, 16, 32, 64, 128)
    warm_ups: int = 2
    repeats: int = 3

    def knobs(self) -> Iterator[dict[str, Any]]:
        for size in self.sizes:
            yield self.setting(micro_batch=size)

    def must_fit(self, point: SimpleNamespace) -> bool:
        return point.micro_batch == self.sizes[0]


@dataclass(frozen=True, kw_only=True)
class Accumulation(GptPlan):
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
class AsReported(GptPlan):
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
class Profiles(GptPlan):
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
class Timeline(GptPlan):
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
class Trial(GptPlan):
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
