"""Knobs of lab 03: how BERT is cut into stages, and how micro-batches go through them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.theory.bert import bert_activations
from labkit.theory.shapes import Model, bert, configuration
from lessons.pipeline.theory.held import needed_bytes
from lessons.pipeline.theory.schedules import even_split, heavy_split, layers_of, require_rounds

BERT = configuration("bert-base")
MODES = ("streaming", "fenced", "training")
KEPT = "kept"  # fenced, without no_grad: activations are kept for a backward that never runs
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")
YOURS = "yours"  # a student's 1F1B, run by the lesson's own loop
_PRECISIONS = ("float32", "tf32", "autocast")
BY_HAND = "by_hand"  # the lesson's own loop instead of torch's
VARIANTS = ("right", BY_HAND, "unscaled", "dropped_layer", "first_rank_clock")
_SMALL: dict[str, Any] = {"layers": 4, "hidden": 128, "heads": 2, "vocabulary": 1000}
_SMALL |= {"batch": 16, "sequence": 32, "warm_ups": 1, "repeats": 3, "stream": 4}


@dataclass(frozen=True, kw_only=True)
class BertPlan(Plan):
    """What all plans of this lab share: the model, the batch, and how often a step is timed.

    `batch` sequences of `sequence` tokens go through BERT-base, cut into stages. A point sets ranks (GPUs used; others
    idle), split, micro_batches, schedule, mode and precision. Modes: "streaming" runs forward only, step after step
    without a barrier; "fenced" waits for all ranks between steps; "training" adds backward and AdamW, fenced.
    """

    lab: ClassVar[str] = "pipeline"
    worker: ClassVar[str] = "lessons.pipeline.worker"
    SMALL: ClassVar[dict[str, Any]] = _SMALL
    FULL: ClassVar[dict[str, Any]] = {"seeds": (0, 1, 2)}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {f"a batch of {n}": {"batch": n} for n in (48, 32, 16, 8)}
    FEW: ClassVar[int | None] = 2
    least: ClassVar[int] = 2

    layers: int = BERT["num_hidden_layers"]
    hidden: int = BERT["hidden_size"]
    heads: int = BERT["num_attention_heads"]
    vocabulary: int = BERT["vocab_size"]
    batch: int = 64
    sequence: int = 512
    precision: str = "float32"  # float32 as published (TF32 off), tf32, or autocast (to bfloat16)
    warm_ups: int = 2
    repeats: int = 3  # timed steps of a fenced or training point
    stream: int = 8  # timed steps of a streaming point

    def validate(self) -> None:
        self.require("precision", self.precision, _PRECISIONS)
        if min(self.repeats, self.stream, self.warm_ups) < 1:
            raise PlanError(f"warm_ups={self.warm_ups}, repeats={self.repeats}, stream={self.stream}: at least 1 each")
        if self.hidden % self.heads:
            raise PlanError(f"hidden={self.hidden} does not divide into heads={self.heads}")
        for knobs in self.knobs():
            self._require_count(knobs["micro_batches"])
            if "split" in knobs:
                self.require_point(knobs)

    def _require_count(self, count: int) -> None:
        if not 1 <= count <= self.batch or self.batch % count:
            fitting = ", ".join(str(n) for n in range(1, self.batch + 1) if self.batch % n == 0)
            raise PlanError(f"micro_batches={count} do not divide the batch of {self.batch}; these do: {fitting}")

    def require_point(self, knobs: dict[str, Any]) -> None:
        """Raise PlanError for a point that no pipeline can run, and say what is allowed."""
        ranks, split, count = knobs["ranks"], knobs["split"], knobs["micro_batches"]
        for name, allowed in (("mode", (*MODES, KEPT)), ("schedule", (*SCHEDULES, YOURS)), ("precision", _PRECISIONS)):
            self.require(name, knobs[name], allowed)
        stages = layers_of(split)
        if not 1 <= ranks <= self.gpus:
            raise PlanError(f"split={split!r} wants {ranks} GPUs side by side; this plan has {self.gpus}")
        if sum(stages) != self.layers:
            raise PlanError(f"split={split!r} has {sum(stages)} layers; this model has {self.layers}")
        if 0 in stages:
            raise PlanError(f"split={split!r}: stage {stages.index(0)} is empty; every stage needs a layer")
        if len(stages) % ranks:
            raise PlanError(f"split={split!r} has {len(stages)} stages, which do not divide among {ranks} ranks")
        if len(stages) > ranks and knobs["schedule"] != "interleaved":
            several = "only 'interleaved' gives a GPU several"
            raise PlanError(f"split={split!r}: {len(stages)} stages are more than {ranks} GPUs; {several}")
        if knobs["mode"] == "training":
            require_rounds(knobs["schedule"], ranks, count)
        elif knobs["schedule"] != "gpipe":
            raise PlanError(f"mode={knobs['mode']!r} runs forward only, where all schedules are one: take 'gpipe'")

    @property
    def model(self) -> Model:
        """The whole model as its parameters' shapes."""
        return bert(self.hidden, self.layers, self.vocabulary, max(512, self.sequence))

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return needed_bytes(self.model, self.hidden, self.heads, self.batch, self.sequence, point)

    @property
    def most_ranks(self) -> int:
        """The most GPUs among which the layers divide evenly: for sweeps that do not turn this knob."""
        return max(n for n in range(1, self.gpus + 1) if self.layers % n == 0)

    def even(self, schedule: str, chunks: int = 0) -> str:
        """Return the even split over `most_ranks`; interleaved has `chunks` stages a rank: 3, 2 or 1, what divides."""
        divisible = (n for n in (3, 2, 1) if self.layers % (n * self.most_ranks) == 0)
        stages = self.most_ranks * ((chunks or next(divisible)) if schedule == "interleaved" else 1)
        return even_split(self.layers, stages)

    def enough(self, count: int) -> int:
        """Return `count` micro-batches, or more where that many ranks need more: a number that divides the batch."""
        enough = range(max(count, self.most_ranks), self.batch + 1)
        return next((n for n in enough if self.batch % n == 0), count)

    def setting(self, *, ranks: int = 0, split: str = "", **knobs: Any) -> dict[str, Any]:
        """Return a point's knobs; without a split every rank gets as many layers."""
        ranks = ranks or self.most_ranks
        usual = {"micro_batches": 4, "schedule": "gpipe", "mode": "training", "precision": self.precision}
        return {"ranks": ranks, "split": split or even_split(self.layers, ranks), **usual, **knobs}


@dataclass(frozen=True, kw_only=True)
class Gpus(BertPlan):
    """Every mode on several numbers of GPUs (those of 2, 3 and 4 that fit, if none are named)."""

    SMALL: ClassVar[dict[str, Any]] = {"ranks": (1, 2)}

    ranks: tuple[int, ...] = ()
    modes: tuple[str, ...] = MODES
    micro_batches: int = 4

    def knobs(self) -> Iterator[dict[str, Any]]:
        usual = [n for n in (2, 3, 4) if n <= self.gpus] or [1]
        for ranks, mode in product(self.ranks or usual, self.modes):
            yield self.setting(ranks=ranks, mode=mode, micro_batches=self.micro_batches)


@dataclass(frozen=True, kw_only=True)
class MicroBatches(BertPlan):
    """The number of micro-batches, streaming and training (under GPipe), on `ranks` GPUs (0: all that divide)."""

    SMALL: ClassVar[dict[str, Any]] = {"counts": (1, 2, 4, 8)}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {
        f"a batch of {n}": {"batch": n, "counts": tuple(2**i for i in range(7) if n % 2**i == 0)}
        for n in (48, 32, 16, 8)
    }

    counts: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    modes: tuple[str, ...] = ("streaming", "training")
    ranks: int = 0

    def knobs(self) -> Iterator[dict[str, Any]]:
        for count, mode in product(self.counts, self.modes):
            yield self.setting(ranks=self.ranks, micro_batches=count, mode=mode)


@dataclass(frozen=True, kw_only=True)
class Schedules(BertPlan):
    """Training under each schedule; interleaved cuts `chunks` stages a rank (3 or 2, what divides, if not named).

    Without counts of micro-batches there are 8, or as many as the ranks need. `yours` is the file of a `one_f_one_b`
    that somebody wrote: its lists are one schedule more.
    """

    SMALL: ClassVar[dict[str, Any]] = {"counts": (4,)}

    schedules: tuple[str, ...] = SCHEDULES
    counts: tuple[int, ...] = ()
    chunks: int = 0
    yours: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        schedules = (*self.schedules, *([YOURS] if self.yours else []))
        for schedule, count in product(schedules, self.counts or (self.enough(8),)):
            yield self.setting(schedule=schedule, micro_batches=count, split=self.even(schedule, self.chunks))


@dataclass(frozen=True, kw_only=True)
class Splits(BertPlan):
    """The same layers cut in several ways; without `splits` evenly, and with half of them in the first stage."""

    SMALL: ClassVar[dict[str, Any]] = {"splits": ("2-2", "3-1")}

    splits: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("streaming", "training")
    micro_batches: int = 4

    def knobs(self) -> Iterator[dict[str, Any]]:
        usual = even_split(self.layers, self.most_ranks), heavy_split(self.layers, self.most_ranks)
        for split, mode in product(dict.fromkeys(self.splits or usual), self.modes):
            knobs = {"ranks": len(layers_of(split)), "split": split, "mode": mode}
            yield self.setting(**knobs, micro_batches=self.micro_batches)


@dataclass(frozen=True, kw_only=True)
class AsReported(BertPlan):
    """The reports' model: with dropout and with attention product by product, each off and on, in every mode."""

    SMALL: ClassVar[dict[str, Any]] = {"layers": 2, "modes": ("streaming", "training")}

    modes: tuple[str, ...] = ("streaming", KEPT, "training")
    dropout: float = BERT["hidden_dropout_prob"]
    micro_batches: int = 4

    def knobs(self) -> Iterator[dict[str, Any]]:
        for attention, dropout, mode in product(("fused", "plain"), (0.0, self.dropout), self.modes):
            model = {"attention": attention, "dropout": dropout}
            yield self.setting(mode=mode, micro_batches=self.micro_batches, **model)


@dataclass(frozen=True, kw_only=True)
class Trial(BertPlan):
    """Pipelines compared with the whole model on one GPU: outputs, loss, gradients. `variants` may be bugs.

    The loop by hand runs the schedules `by_hand`: "gpipe", "1f1b", or "yours", whose `one_f_one_b` is in the file
    `yours`. If no counts of micro-batches are named, there are 4, or as many as the ranks need.
    """

    SMALL: ClassVar[dict[str, Any]] = {"repeats": 4}

    variants: tuple[str, ...] = ("right",)
    schedules: tuple[str, ...] = ("gpipe",)
    splits: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    by_hand: tuple[str, ...] = ("gpipe",)
    yours: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            self.require("variant", variant, VARIANTS)
            mode = "fenced" if variant == "first_rank_clock" else "training"
            schedules = self.by_hand if variant == BY_HAND else self.schedules
            for schedule, count in product(schedules, self.counts or (self.enough(4),)):
                for split in self.splits or (self.even(schedule),):
                    ranks = self.most_ranks if schedule == "interleaved" else len(layers_of(split))
                    point = self.setting(ranks=ranks, split=split, schedule=schedule, micro_batches=count, mode=mode)
                    yield {"variant": variant, **point}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return what the whole model on all samples needs, which each rank runs first, with the rank's own weights."""
        kept = bert_activations(self.layers, self.hidden, self.heads, self.batch, self.sequence)
        return 2 * 4 * self.model.parameters + kept
