"""Knobs of lab 04: BERT replicated or sharded, the step's speed, and trials beside one process."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from labkit.engine.errors import PlanError
from labkit.engine.launch_settings import allowed_gpus
from labkit.plans import STRATEGIES, ZERO, TrainingPlan
from labkit.theory.bert import autocast_activations, bert_activations
from labkit.theory.memory import BYTES_PER_PARAMETER, compared_bytes, ledger
from labkit.theory.shapes import Model, bert, configuration, elements

BERT = configuration("bert-base")
BY_HAND = {"own_hook": "ddp", "own_shards": "fsdp_full"}  # what is written out in the lesson, and what it stands for
LAYER_FUNCTIONS = ("gather", "free", "scatter")
YOURS = "yours"  # a student's gather, free and scatter in the layer that the lesson writes out
VARIANTS = ("right", *BY_HAND, "no_sampler", "summed", "no_set_epoch", "unused_parameter")
_SMALL: dict[str, Any] = {
    "layers": 3,
    "hidden": 128,
    "heads": 2,
    "vocabulary": 1000,
    "sequence": 32,
    "batches": (16, 8),
    "warm_ups": 1,
    "repeats": 3,
}


def installed(library: str) -> bool:
    """Say whether this machine has the library; nothing is imported."""
    return importlib.util.find_spec(library) is not None


def _divisible(batches: tuple[int, ...], gpus: int) -> tuple[int, ...]:
    """Return each batch once, or the largest number below it that divides among the GPUs."""
    return tuple(dict.fromkeys(max(gpus, batch - batch % gpus) for batch in batches))


@dataclass(frozen=True, kw_only=True)
class BertPlan(TrainingPlan):
    """BERT-base for classification, without dropout; two published reports trained a BERT, too (see AsReported)."""

    lab: ClassVar[str] = "ddp_fsdp"
    worker: ClassVar[str] = "lessons.ddp_fsdp.worker"
    SMALL: ClassVar[dict[str, Any]] = _SMALL
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {
        f"batches of {large} and {small}": {"batches": (large, small)}
        for large, small in ((48, 12), (32, 8), (16, 4), (8, 4))
    }

    layers: int = BERT["num_hidden_layers"]
    hidden: int = BERT["hidden_size"]
    heads: int = BERT["num_attention_heads"]
    vocabulary: int = BERT["vocab_size"]
    sequence: int = 512
    batches: tuple[int, ...] = (64, 16)

    def validate(self) -> None:
        if self.hidden % self.heads:
            raise PlanError(f"hidden={self.hidden} does not divide into heads={self.heads}")
        super().validate()

    @property
    def model(self) -> Model:
        """The model as its parameters' shapes."""
        return bert(self.hidden, self.layers, self.vocabulary, max(512, self.sequence))

    def setting(
        self, strategy: str, batch: int = 0, precision: str = "float32", *, fused: bool = True, compiled: bool = False
    ) -> dict[str, Any]:
        """Return a point's knobs."""
        return {
            "strategy": strategy,
            "ranks": self.gpus,
            "batch": batch or self.batches[0],
            "precision": precision,
            "fused": fused,
            "compiled": compiled,
        }

    @classmethod
    def small(cls, **knobs: Any) -> Self:
        """Return a plan of seconds; a batch that does not divide among the workers is cut to one that does."""
        gpus = knobs.get("gpus") or cls.few(2)
        batches = _divisible(cls.merged("SMALL")["batches"], gpus)
        return super().small(**{"gpus": gpus, "batches": batches} | knobs)

    @classmethod
    def full(cls, **knobs: Any) -> Self:
        """Return a plan of the published size; a batch that does not divide among the GPUs is cut to one that does."""
        gpus = knobs.get("gpus") or max(1, allowed_gpus())
        if knobs.get("size") == "middle" or "batches" not in knobs:
            knobs["batches"] = _divisible(knobs.get("batches", cls.batches), gpus)
        return super().full(**knobs)

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return what the ledger says; DeepSpeed's stages, which it does not know, hold what DDP holds or less."""
        size = (self.layers, self.hidden, self.heads, point.batch // point.ranks, self.sequence)
        element_bytes, state_bytes = BYTES_PER_PARAMETER.get(point.precision, BYTES_PER_PARAMETER["float32"])
        if point.precision == "autocast":
            kept = autocast_activations(*size) + 2 * elements(self.model.block) * self.layers
        else:
            attention, dropout = getattr(point, "attention", "fused"), getattr(point, "dropout", 0.0)
            kept = bert_activations(*size, element_bytes, attention=attention, dropout=dropout > 0)
        strategy = "ddp" if point.strategy in ZERO else point.strategy
        sizes = {"element_bytes": element_bytes, "state_bytes": state_bytes}
        return sum(ledger(self.model, strategy, point.ranks, kept, **sizes).values())


@dataclass(frozen=True, kw_only=True)
class Strategies(BertPlan):
    """Every strategy at every batch, interleaved; the first seed's rows also hold both ledgers."""

    SMALL: ClassVar[dict[str, Any]] = {"seeds": (0,)}

    seeds: tuple[int, ...] = (0, 1, 2)
    strategies: tuple[str, ...] = STRATEGIES

    def knobs(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches:
            for strategy in self.strategies:
                yield self.setting(strategy, batch)


@dataclass(frozen=True, kw_only=True)
class Knobs(BertPlan):
    """From plain float32 training to a fast one: one knob more at a time, under one strategy.

    The model has no dropout and a fused attention, so the first rung is not the reports' model (see AsReported).
    """

    SMALL: ClassVar[dict[str, Any]] = {"steps": ("float32, unfused AdamW", "fused AdamW")}

    strategy: str = "ddp"
    seeds: tuple[int, ...] = (0,)
    steps: tuple[str, ...] = ("float32, unfused AdamW", "fused AdamW", "TF32", "bfloat16 autocast", "torch.compile")

    def knobs(self) -> Iterator[dict[str, Any]]:
        knobs = {
            "float32, unfused AdamW": {"fused": False},
            "fused AdamW": {},
            "TF32": {"precision": "tf32"},
            "bfloat16 autocast": {"precision": "autocast"},
            "torch.compile": {"precision": "autocast", "compiled": True},
        }
        for step in self.steps:
            self.require("step", step, tuple(knobs))
            yield self.setting(self.strategy, **knobs[step]) | {"knob": step}


@dataclass(frozen=True, kw_only=True)
class AsReported(BertPlan):
    """The reports' model: with dropout and with attention product by product, each on and off, at two batches."""

    SMALL: ClassVar[dict[str, Any]] = {"layers": 2, "repeats": 3}

    strategy: str = "ddp"
    dropout: float = BERT["hidden_dropout_prob"]
    repeats: int = 6

    def knobs(self) -> Iterator[dict[str, Any]]:
        for attention, dropout, batch in product(("fused", "plain"), (0.0, self.dropout), self.batches):
            yield self.setting(self.strategy, batch, fused=False) | {"attention": attention, "dropout": dropout}


@dataclass(frozen=True, kw_only=True)
class Zero(BertPlan):
    """One of DeepSpeed's ZeRO stages, or strategies of torch beside it; a launch per stage: its buffers stay behind.

    `limits` of stage 3: "default", DeepSpeed's own (small parameters stay whole, gathered ones are kept for reuse), or
    "zero": all of them 0, so that it gathers and frees every parameter as FSDP full does.
    """

    SMALL: ClassVar[dict[str, Any]] = {"batches": (8,), "repeats": 3}
    ALLOWED: ClassVar[dict[str, tuple]] = {"limits": ("", "default", "zero")}  # "": of other strategies than zero3

    batches: tuple[int, ...] = (64,)
    seeds: tuple[int, ...] = (0,)
    strategies: tuple[str, ...] = ("ddp", "fsdp_grad", "fsdp_full")
    limits: str = "default"

    def knobs(self) -> Iterator[dict[str, Any]]:
        for strategy in self.strategies:
            yield self.setting(strategy) | {"limits": self.limits if strategy == "zero3" else ""}


ZERO_RUNS = ("strategies", "zero1", "zero2", "zero3", "zero3_zero")  # recorded: torch's strategies, then the stages


def zero_plans(size: str, gpus: int, seeds: int) -> list[Zero]:
    """Return plans to measure the same here, a launch each, at the notebook's parameters."""
    each: tuple[dict[str, Any], ...] = ({}, *({"strategies": (stage,)} for stage in ZERO))
    return [Zero.sized(size, gpus=gpus, seeds=seeds, **knobs) for knobs in (*each, each[-1] | {"limits": "zero"})]


@dataclass(frozen=True, kw_only=True)
class Trial(BertPlan):
    """Strategies beside one process that trains on the same global batches, in float32 with SGD.

    Some variants are written by hand, some have a bug. `yours` is the file of a `sharded_layer` that somebody wrote:
    it is one variant more.
    """

    SMALL: ClassVar[dict[str, Any]] = {
        "hidden": 64,
        "layers": 2,
        "steps": 2,
        "batches": (12,),
        "warm_ups": 1,
        "repeats": 1,
    }
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": (*VARIANTS, YOURS)}

    batches: tuple[int, ...] = (12,)
    strategies: tuple[str, ...] = ("ddp", "fsdp_grad", "fsdp_full", "fsdp_root")
    variants: tuple[str, ...] = ("right",)
    steps: int = 3  # of an epoch; two epochs are run
    sequence: int = 64
    warm_ups: int = 1
    repeats: int = 1
    yours: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in (*self.variants, *([YOURS] if self.yours else [])):
            others = "fsdp_full" if variant == YOURS else BY_HAND.get(variant, "ddp")
            for strategy in self.strategies if variant == "right" else (others,):
                yield self.setting(strategy) | {"variant": variant}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        whole = 4 * self.model.parameters
        forward = bert_activations(self.layers, self.hidden, self.heads, point.batch, self.sequence)
        return compared_bytes(whole, forward)


@dataclass(frozen=True, kw_only=True)
class Layers(BertPlan):
    """Layers that somebody sharded, a point per file and number of ranks: watched while they train, then timed.

    On all ranks the reference solution and torch's own full sharding are timed, too. A file is one of a
    `sharded_layer`. Small runs have three processes: an answer may be right for two alone.
    """

    SMALL: ClassVar[dict[str, Any]] = {"hidden": 64, "layers": 2, "warm_ups": 3, "repeats": 10}

    files: tuple[str, ...] = ()
    samples: int = 4  # a rank and step
    steps: int = 2  # that are watched
    sequence: int = 64
    warm_ups: int = 3
    repeats: int = 10

    @classmethod
    def small(cls, **knobs: Any) -> Self:
        """Return a plan of seconds, on three processes."""
        return super().small(**{"gpus": knobs.get("gpus") or cls.few(3)} | knobs)

    def knobs(self) -> Iterator[dict[str, Any]]:
        for ranks in sorted({2, min(3, self.gpus), self.gpus}):
            others = (("own_shards", ""), ("right", "")) if ranks == self.gpus else ()
            for variant, file in (*((YOURS, file) for file in self.files), *others):
                setting = self.setting("fsdp_full", self.samples * ranks) | {"ranks": ranks}
                yield setting | {"variant": variant, "file": file}
