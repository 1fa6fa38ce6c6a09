"""Knobs of lab 17: GPT-2 on one GPU, rung by rung, more and more sequences, the head's loss, and optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.plan import Plan
from labkit.plans import GptPlan, smaller_gpts
from labkit.theory.gpt import VOCABULARY

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
VARIANTS = ("right", "rounded_away", "first_step_forever", "decay_without_rate")


@dataclass(frozen=True, kw_only=True)
class Ladder(GptPlan):
    """One GPU, from the report's configuration up, one knob per rung; "one graph" (half a minute) only if named."""

    lab: ClassVar[str] = "one_gpu"
    worker: ClassVar[str] = "lessons.one_gpu.worker"
    least: ClassVar[int] = 1
    most: ClassVar[int] = 1
    FEW: ClassVar[int | None] = 1
    SMALL: ClassVar[dict[str, Any]] = {"large": 8, "micro_batch": 2}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = smaller_gpts(
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

    lab: ClassVar[str] = "one_gpu"
    worker: ClassVar[str] = "lessons.one_gpu.worker"
    least: ClassVar[int] = 1
    most: ClassVar[int] = 1
    FEW: ClassVar[int | None] = 1
    SMALL: ClassVar[dict[str, Any]] = {"sizes": (1, 2, 4, 8)}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = smaller_gpts()

    sizes: tuple[int, ...] = (1, 4, 8, 16, 32, 64, 128)
    warm_ups: int = 2
    repeats: int = 3

    def knobs(self) -> Iterator[dict[str, Any]]:
        for size in self.sizes:
            yield self.setting(micro_batch=size)

    def must_fit(self, point: SimpleNamespace) -> bool:
        return point.micro_batch == self.sizes[0]


@dataclass(frozen=True, kw_only=True)
class Head(Plan):
    """The loss and its gradients of what GPT-2's last block gives, by torch with all logits, and in pieces.

    A point sets way ("whole", "pieces", "yours") and pieces; `yours` is the file of a student's `head_loss`.
    """

    lab: ClassVar[str] = "one_gpu"
    worker: ClassVar[str] = "lessons.one_gpu.worker"
    least: ClassVar[int] = 1
    most: ClassVar[int] = 1
    FEW: ClassVar[int | None] = 1
    SMALL: ClassVar[dict[str, Any]] = {"hidden": 96, "words": 500, "tokens": 256, "warm_ups": 1, "repeats": 3}

    hidden: int = 1280
    words: int = VOCABULARY
    tokens: int = 8192
    pieces: int = 8
    warm_ups: int = 2
    repeats: int = 5
    yours: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        for way in ("whole", "pieces", *["yours"][: bool(self.yours)]):
            yield {"way": way, "pieces": 1 if way == "whole" else self.pieces}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        logits = self.tokens // point.pieces * self.words
        return 4 * (4 * logits + 3 * self.words * self.hidden + 4 * self.tokens * self.hidden)


@dataclass(frozen=True, kw_only=True)
class Trial(Plan):
    """A few steps of a small GPT-2 with bfloat16 weights, by optimizers of which some have a bug.

    Beside each stands AdamW with float32 copies, which takes the same gradients.
    """

    lab: ClassVar[str] = "one_gpu"
    worker: ClassVar[str] = "lessons.one_gpu.worker"
    least: ClassVar[int] = 1
    most: ClassVar[int] = 1
    FEW: ClassVar[int | None] = 1
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    layers: int = 2
    hidden: int = 48
    heads: int = 3
    words: int = 200
    sequence: int = 16
    batch: int = 8
    steps: int = 10
    warm_ups: int = 1
    repeats: int = 1

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield {"variant": variant}
