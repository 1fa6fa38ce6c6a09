"""Knobs of lab 07: sums and casts, loss scaling, memory by phase, levers on it, and bugs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.plans import TransformerPlan, smaller_than
from labkit.theory.step_memory import PHASES, ledger
from labkit.theory.transformer import SIZES
from lessons.precision_memory.theory.memory import LEVERS, YOURS, least_peak, shape_of

PRECISIONS = ("float32", "float16", "bfloat16")  # the last two by autocast
SCALINGS = ("float32", "float16", "float16 scaled", "float16 GradScaler", "bfloat16")
VARIANTS = ("right", "list_of_losses", "autocast_around_backward", "metric_keeps_graph")
MICRO_BATCHES = 3  # of a trial's step
CONFIGURATION = ("vocabulary", "hidden", "inner", "layers", "heads", "samples", "sequence", "precision", "phase")
_SHAPE = ("hidden", "inner", "layers", "heads")
_SMALL: dict[str, Any] = dict(zip(_SHAPE, (64, 256, 4, 4), strict=True)) | {
    "vocabulary": 500,
    "sequence": 24,
    "samples": 4,
    "warm_ups": 1,
    "repeats": 3,
}
_LARGEST = "2.7b"
_HIDDEN, _INNER, _LAYERS, _HEADS = SIZES[_LARGEST]
_SMALLER = smaller_than(_LARGEST)  # for GPUs that do not hold it


@dataclass(frozen=True, kw_only=True)
class OneGpu(TransformerPlan):
    """What every plan of this lab shares: one GPU, and the course's transformer in its largest size."""

    lab: ClassVar[str] = "precision_memory"
    worker: ClassVar[str] = "lessons.precision_memory.worker"
    least: ClassVar[int] = 1
    most: ClassVar[int] = 1
    SMALL: ClassVar[dict[str, Any]] = _SMALL
    FEW: ClassVar[int | None] = None
    ALLOWED: ClassVar[dict[str, tuple]] = {"precision": PRECISIONS}

    gpus: int = 1
    hidden: int = _HIDDEN
    inner: int = _INNER
    layers: int = _LAYERS
    heads: int = _HEADS
    samples: int = 4


@dataclass(frozen=True, kw_only=True)
class Numbers(OneGpu):
    """Sums of 0.01, and the dtypes that autocast gives each tensor.

    A point sets experiment ("sums", "dtypes") and precision.
    """

    steps: int = 1000

    def knobs(self) -> Iterator[dict[str, Any]]:
        yield {"experiment": "sums", "precision": "float32"}
        for precision in PRECISIONS:
            yield {"experiment": "dtypes", "precision": precision}


@dataclass(frozen=True, kw_only=True)
class Scaling(OneGpu):
    """Gradients by their exponent, and the course of a scale: the smallest size, trained in each of `ways`.

    A point sets way. The scale grows every `growth_interval` steps without overflow; torch's default is 2000.
    """

    SMALL: ClassVar[dict[str, Any]] = {"steps": 15, "growth_interval": 2}
    ALLOWED: ClassVar[dict[str, tuple]] = {"way": SCALINGS}

    hidden: int = SIZES["small"][0]
    inner: int = SIZES["small"][1]
    layers: int = SIZES["small"][2]
    heads: int = SIZES["small"][3]
    ways: tuple[str, ...] = SCALINGS
    steps: int = 80
    growth_interval: int = 4
    first_scale: float = 65536.0

    def knobs(self) -> Iterator[dict[str, Any]]:
        for way in self.ways:
            yield {"way": way}


@dataclass(frozen=True, kw_only=True)
class Memory(OneGpu):
    """The peak of a forward without gradients, one that keeps activations, the first step and a steady one.

    A point sets sequence, precision and update (AdamW's kernels: "foreach", torch's default, or "fused").
    """

    SMALL: ClassVar[dict[str, Any]] = {"sequences": (16, 32, 64)}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _SMALLER

    sequences: tuple[int, ...] = (128, 256, 512, 2048)
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    update: str = "fused"

    def knobs(self) -> Iterator[dict[str, Any]]:
        for precision in self.precisions:
            for sequence in self.sequences:
                yield {"sequence": sequence, "precision": precision, "update": self.update}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return what all phases need at the shortest context; at others the first: a phase that fits is a row."""
        phases = PHASES if self.must_fit(point) else PHASES[:1]
        shape = shape_of(self, sequence=point.sequence, precision=point.precision)
        return max(sum(ledger(shape, phase, point.update).values()) for phase in phases)

    def must_fit(self, point: SimpleNamespace) -> bool:
        return point.sequence == min(self.sequences)


@dataclass(frozen=True, kw_only=True)
class Timeline(OneGpu):
    """The first step and a steady one with every allocation remembered, and the line that made it."""

    SMALL: ClassVar[dict[str, Any]] = {"sequence": 64}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _SMALLER

    sequence: int = 512
    precisions: tuple[str, ...] = ("float32", "bfloat16")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for precision in self.precisions:
            yield {"sequence": self.sequence, "precision": precision, "update": "fused"}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        shape = shape_of(self, precision=point.precision)
        return sum(ledger(shape, "steady step", point.update).values())


@dataclass(frozen=True, kw_only=True)
class Levers(OneGpu):
    """What lowers the peak of a steady step, and what each lever costs in time; a point sets lever.

    On a CPU there is no host to move activations to: that lever is left out there. `yours`, the file of a student's
    `run_blocks`, is one lever more.
    """

    SMALL: ClassVar[dict[str, Any]] = {"sequence": 32, "repeats": 2}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = _SMALLER
    ALLOWED: ClassVar[dict[str, tuple]] = {"lever": tuple(LEVERS)}

    sequence: int = 1024
    levers: tuple[str, ...] = tuple(lever for lever, options in LEVERS.items() if "by" not in options)
    warm_ups: int = 2
    repeats: int = 5
    yours: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for lever in (*self.levers, *([YOURS] if self.yours else [])):
            if self.device == "cuda" or lever != "activations to the host":
                yield {"lever": lever, "precision": "bfloat16", "sequence": self.sequence}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return least_peak(shape_of(self, precision=point.precision), point.lever)

    def must_fit(self, point: SimpleNamespace) -> bool:
        """All levers are shown beside the plain step."""
        return point.lever == "plain"


@dataclass(frozen=True, kw_only=True)
class Hidden(OneGpu):
    """The peaks that the exercise's function is to predict; a point sets all of a configuration (CONFIGURATION)."""

    configurations: tuple[tuple, ...] = ((500, 64, 256, 2, 4, 2, 16, "float32", "steady"),)

    def validate(self) -> None:
        if any(len(configuration) != len(CONFIGURATION) for configuration in self.configurations):
            raise PlanError(f"a configuration has {len(CONFIGURATION)} values: {', '.join(CONFIGURATION)}")
        super().validate()

    def knobs(self) -> Iterator[dict[str, Any]]:
        for configuration in self.configurations:
            yield dict(zip(CONFIGURATION, configuration, strict=True)) | {"update": "fused"}


@dataclass(frozen=True, kw_only=True)
class Trial(OneGpu):
    """Training loops that hold more memory than they need, beside the right one; a point sets variant."""

    SMALL: ClassVar[dict[str, Any]] = {"vocabulary": 1200, "sequence": 32, "samples": 2, "layers": 2}
    # A bug needs no large model to show.
    FULL: ClassVar[dict[str, Any]] = SMALL | dict(zip(_SHAPE, (128, 512, 4, 4), strict=True)) | {"samples": 4}
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    steps: int = 4

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in dict.fromkeys(("right", *self.variants)):
            yield {"variant": variant, "precision": "bfloat16"}
