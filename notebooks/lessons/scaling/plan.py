"""Knobs of lab 13: epochs on 1, 2, 4 GPUs, what they exchange, and what they learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.theory.cifar10 import KINDS, PIXELS, PLAIN, TESTING, TRAINING, kind_here
from labkit.theory.resnet import FLOAT_BYTES, kept_numbers
from lessons.scaling.theory import BASE_BATCH, BASE_RATE, RESNET, TRAININGS, YOURS, model, scaled_rate

LOADERS = ("device", "host")
_TRAININGS = tuple(name for name in TRAININGS if name != YOURS)
VARIANTS = ("right", "no_sampler", "no_set_epoch", "one_shard")
_SMALL: dict[str, Any] = {"width": 4, "training": 128, "testing": 64, "processes": 0}


def counts(gpus: int) -> tuple[int, ...]:
    """Return the numbers of GPUs that are compared: powers of two, and all."""
    powers = [2**exponent for exponent in range(gpus.bit_length()) if 2**exponent <= gpus]
    return tuple(sorted({*powers, gpus}))


@dataclass(frozen=True, kw_only=True)
class Network(Plan):
    """What every plan of this lab shares: ResNet-18 and its images.

    A point sets ranks (GPUs used; others idle), gpu_batch (images per GPU and step), batch (over all GPUs), loader
    ("host": torch's DataLoader in processes of its own; "device": everything lies on the GPU) and precision.
    `images` is "cifar-10", "glyphs" or "plain glyphs", which are smaller and easier; "auto" takes CIFAR-10 where this
    machine has it, and glyphs elsewhere.
    """

    lab: ClassVar[str] = "scaling"
    worker: ClassVar[str] = "lessons.scaling.worker"
    SMALL: ClassVar[dict[str, Any]] = _SMALL
    ALLOWED: ClassVar[dict[str, tuple]] = {"loader": LOADERS}
    FEW: ClassVar[int | None] = 2

    width: int = RESNET["width"]
    blocks: tuple[int, ...] = tuple(RESNET["blocks"])
    training: int = TRAINING
    testing: int = TESTING
    images: str = "auto"
    processes: int = 4  # of a rank's DataLoader

    def chosen(self) -> dict[str, Any]:
        try:
            return {"images": kind_here() if self.images == "auto" else self.images}
        except FileNotFoundError as error:
            raise PlanError(str(error)) from None

    def validate(self) -> None:
        self.require("images", self.images, KINDS)
        for knobs in self.knobs():
            if not 1 <= knobs["ranks"] <= self.gpus:
                raise PlanError(f"ranks={knobs['ranks']}: this plan has {self.gpus} GPUs")
            if not 1 <= knobs["batch"] <= self.training:
                raise PlanError(f"batch={knobs['batch']}: there are {self.training} images to train on")

    def setting(
        self, ranks: int, gpu_batch: int, *, loader: str = "device", precision: str = "float32", **more: Any
    ) -> dict[str, Any]:
        """Return a point's knobs."""
        batch = {"gpu_batch": gpu_batch, "batch": ranks * gpu_batch}
        return {"ranks": ranks, **batch, "loader": loader, "precision": precision, **more}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Weights, gradients and momentum, all images as bytes, and what a forward keeps; not cuDNN's workspaces.

        Under autocast a forward keeps bfloat16, and a copy of the weights in it.
        """
        parameters, autocast = model(self.width, self.blocks).parameters, point.precision == "autocast"
        states = parameters * (3 * FLOAT_BYTES + 2 * autocast) + (self.training + self.testing) * PIXELS
        return states + point.gpu_batch * kept_numbers(self.width, self.blocks) * (2 if autocast else FLOAT_BYTES)

    @property
    def several(self) -> tuple[int, ...]:
        """The numbers of GPUs that exchange gradients; one where there is one only."""
        return counts(self.gpus)[1:] or (1,)


@dataclass(frozen=True, kw_only=True)
class Epochs(Network):
    """An epoch in parts, by images per GPU, GPUs and loader; the first epoch is a warm-up of `first_steps` steps.

    Short epochs are repeated until `least_steps` are timed, `most_repeats` times at most. `batches` are per GPU; the
    largest is also divided among the GPUs, so that a job of fixed size can be followed.
    """

    SMALL: ClassVar[dict[str, Any]] = {"batches": (8, 32), "first_steps": 2, "least_steps": 16, "most_repeats": 2}

    batches: tuple[int, ...] = (32, 128, 512)
    loaders: tuple[str, ...] = LOADERS
    first_steps: int = 30
    least_steps: int = 200
    most_repeats: int = 3

    def knobs(self) -> Iterator[dict[str, Any]]:
        shares = {(ranks, self.batches[-1] // ranks) for ranks in counts(self.gpus)}
        shares |= {(ranks, batch) for ranks in counts(self.gpus) for batch in self.batches}
        for loader in self.loaders:
            for ranks, batch in sorted(shares):
                yield self.setting(ranks, batch, loader=loader)


@dataclass(frozen=True, kw_only=True)
class Communication(Network):
    """A step with and without its all-reduce, in a trace and with hooks; the all-reduce alone; DataParallel's step."""

    SMALL: ClassVar[dict[str, Any]] = {"batches": (8, 32), "repeats": 3, "warm_ups": 1}

    batches: tuple[int, ...] = (32, 128, 512)
    strategies: tuple[str, ...] = ("ddp", "dp")
    warm_ups: int = 5
    repeats: int = 30

    def knobs(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches:
            for ranks in self.several:
                for strategy in self.strategies:
                    if strategy == "ddp" or (self.device == "cuda" and ranks == self.gpus > 1):
                        yield self.setting(ranks, batch, strategy=strategy)


@dataclass(frozen=True, kw_only=True)
class Accuracy(Network):
    """Whole trainings: one GPU's reference, a large batch on one GPU and on all, with one choice changed at a time.

    On one GPU, only trainings that need no other are left. Without GPUs, torch has no SyncBatchNorm. `yours` is the
    file of a student's `shard`, which takes the place of torch's sampler in one training more. Small images are so few
    and so easy that a CPU learns from them in seconds; two ranks cannot share their odd number evenly.
    """

    SMALL: ClassVar[dict[str, Any]] = {
        "images": PLAIN,
        "training": 767,
        "testing": 250,
        "width": 8,
        "blocks": (1, 1, 1),
        "gpu_batch": 16,
        "reference_batch": 16,
    }
    # One GPU takes the images of all: on eight GPUs of 8 GB they are too many.
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {f"{n} images a GPU": {"gpu_batch": n} for n in (256, 128)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"training": _TRAININGS}

    seeds: tuple[int, ...] = (0, 1, 2)
    trainings: tuple[str, ...] = _TRAININGS
    gpu_batch: int = 512
    reference_batch: int = BASE_BATCH
    epochs: int = 3
    warm_up_epochs: float = 1.0
    yours: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for training in self.trainings:
            alone = training in ("reference", "one_gpu")
            if (alone or self.gpus > 1) and (self.device == "cuda" or training != "sync_bn"):
                yield self._training(training)
        if self.yours:
            yield self._training(YOURS)

    def _training(self, training: str) -> dict[str, Any]:
        precision = "autocast" if self.device == "cuda" else "float32"
        common = {"precision": precision, "variant": training, "reshuffle": True, "sync_bn": False}
        if training == "reference":
            return self.setting(1, self.reference_batch, **common, rate=BASE_RATE, warm_up_epochs=0.0)
        batch = self.gpus * self.gpu_batch
        rate = scaled_rate(batch, BASE_RATE, self.reference_batch)
        common |= {"rate": rate, "warm_up_epochs": self.warm_up_epochs}
        if training == "one_gpu":
            return self.setting(1, batch, **common)
        common |= {
            "large": {},
            YOURS: {},
            "no_warm_up": {"warm_up_epochs": 0.0},
            "unscaled": {"rate": BASE_RATE},
            "same_order": {"reshuffle": False},
            "sync_bn": {"sync_bn": True},
        }[training]
        return self.setting(self.gpus, self.gpu_batch, **common)


@dataclass(frozen=True, kw_only=True)
class Messages(Network):
    """What DistributedDataParallel calls when it is made, and in its first steps; the order of images by epoch."""

    SMALL: ClassVar[dict[str, Any]] = {"gpu_batch": 8}

    gpu_batch: int = 32

    def knobs(self) -> Iterator[dict[str, Any]]:
        yield self.setting(self.gpus, self.gpu_batch)


@dataclass(frozen=True, kw_only=True)
class Trial(Network):
    """A short training with its validation: right, or with one of the lab's bugs."""

    SMALL: ClassVar[dict[str, Any]] = {"gpu_batch": 16, "training": 96, "testing": 48}
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    training: int = 4096
    testing: int = 1024
    variants: tuple[str, ...] = ("right",)
    gpu_batch: int = 128
    epochs: int = 2

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield self.setting(self.gpus, self.gpu_batch, variant=variant)
