"""Knobs of lab 00: a first launch, a launch that fails on purpose, and what launching costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from labkit.engine.errors import PlanError
from labkit.engine.plan import SIZES, Plan


@dataclass(frozen=True, kw_only=True)
class Hello(Plan):
    """Every rank says who and where it is, and all of them add up their ranks."""

    lab: ClassVar[str] = "start"
    worker: ClassVar[str] = "lessons.start.worker"
    FEW: ClassVar[int | None] = 2

    sums: int = 20  # how often the ranks add up, to see the first time beside the later ones

    def validate(self) -> None:
        if self.sums < 2:
            raise PlanError(f"sums={self.sums}: at least 2, to compare the first with a later one")


_KINDS = ("raises", "killed", "leaves", "hangs")


@dataclass(frozen=True, kw_only=True)
class Failure(Plan):
    """One rank fails on purpose at the second of three points, while the others go on to meet it.

    `kind`: it raises; is killed by SIGKILL; leaves with exit status 0 and without a word; or hangs.
    """

    lab: ClassVar[str] = "start"
    worker: ClassVar[str] = "lessons.start.worker"
    FEW: ClassVar[int | None] = 2
    least: ClassVar[int] = 2

    rank: int = 1
    kind: str = "raises"

    def validate(self) -> None:
        self.require("kind", self.kind, _KINDS)
        if not 0 <= self.rank < self.gpus:
            raise PlanError(f"rank={self.rank}: with gpus={self.gpus} the ranks are 0 to {self.gpus - 1}")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for fails in (False, True, False):
            yield {"fails": fails}

    @classmethod
    def sized(cls, size: str = "auto", *, gpus: int = 0, **knobs) -> Self:
        """Return a plan of at least two workers, one to fail and one to wait: CPU processes where one GPU is used."""
        if size == "recorded" or (gpus != 1 and cls.on_gpus()):
            return super().sized(size, gpus=gpus, **knobs)
        cls.require("size", size, SIZES)
        return super().sized("small", gpus=max(gpus, 2), device="cpu", **knobs)


@dataclass(frozen=True, kw_only=True)
class BertStep(Plan):
    """A small BERT takes a few training steps under DDP: work with the imports of a real lab."""

    lab: ClassVar[str] = "start"
    worker: ClassVar[str] = "lessons.start.worker.bert"

    steps: int = 3


WAYS = ("first", "torchrun", "launch", "sweep")


@dataclass(frozen=True, kw_only=True)
class LaunchCost(Plan):
    """What launch() costs beside the bare torchrun command, and a sweep beside one point (`make bench`).

    Measured on the host, `pairs` times in turns, all by one process: a bare torchrun of BertStep, a launch of the same
    plan, and a launch of `sweep_points` points; before them a notebook's first launch, whose agent was started anew
    `reading_s` seconds before, as a set-up cell does. The first turn is a warm-up.
    """

    lab: ClassVar[str] = "start"
    worker: ClassVar[str] = "lessons.start.worker.bert"
    ALLOWED: ClassVar[dict[str, tuple]] = {"way": WAYS}
    measured_by: ClassVar[str] = "labkit.tools.bench"  # on the host: it is no launch, but several

    pairs: int = 6
    sweep_points: int = 20
    reading_s: float = 20.0  # a page between the set-up cell and the first launch
    ways: tuple[str, ...] = WAYS

    def knobs(self) -> Iterator[dict[str, Any]]:
        for pair in range(self.pairs):
            for way in self.ways:
                yield {"pair": pair, "way": way}

    def one_point(self) -> BertStep:
        """Return what the ways torchrun and launch run."""
        return BertStep(gpus=self.gpus)

    def sweep(self) -> BertStep:
        """Return what the way sweep runs: `sweep_points` points."""
        return BertStep(gpus=self.gpus, seeds=tuple(range(self.sweep_points)))
