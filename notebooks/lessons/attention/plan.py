"""Knobs of lab 08: plain attention and its memory, sweeps and races of implementations, errors and bugs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from lessons.attention.theory import SQUARES, moment_bytes

OURS = ("flash", "hopper")
TORCHS = ("sdpa_flash", "sdpa_cudnn")
IMPLEMENTATIONS = ("plain", "by_hand", "compiled", "tiled", "yours", *OURS, *TORCHS)
IN_PYTORCH = ("tiled", "yours")  # some launches per tile
WIDTH = {"float32": 4, "bfloat16": 2}  # bytes of a number
PRECISIONS = tuple(WIDTH)
VARIANTS = ("right", "no_diagonal_mask", "not_rescaled", "square_backward")  # the last three: suspects


@dataclass(frozen=True, kw_only=True)
class Attention(Plan):
    """What every plan of this lab shares: one GPU measures.

    A point adds implementation, heads (batch × heads), sequence (of queries and of keys), head_dim, precision, causal.
    `yours`, the file of a student's `add_tile`, is one implementation more. Tiles in PyTorch are left out where a head
    has more than `tiled_most` scores.
    """

    lab: ClassVar[str] = "attention"
    worker: ClassVar[str] = "lessons.attention.worker"
    SMALL: ClassVar[dict[str, Any]] = {"precisions": ("float32",)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"implementation": IMPLEMENTATIONS, "precision": PRECISIONS}
    most: ClassVar[int] = 1
    first: ClassVar[str] = "forward"  # what a point's first row needs: later phases may run out of memory

    gpus: int = 1
    implementations: tuple[str, ...] = ("plain", "flash")
    sequences: tuple[int, ...] = (1024,)
    head_dims: tuple[int, ...] = (64,)
    precisions: tuple[str, ...] = ("bfloat16",)
    heads: int = 16
    causal: bool = True
    repeat_ms: int = 40  # how long a point's phase is repeated for
    yours: str = ""
    tiled_most: int = 2**20

    def validate(self) -> None:
        for width in self.head_dims:
            if not 1 <= width <= 128:
                raise PlanError(f"head_dim={width}: the kernels take 1 to 128")

    def setting(self, implementation: str, sequence: int, head_dim: int, precision: str) -> dict[str, Any]:
        """Return a point's knobs."""
        shape = {"heads": self.heads, "sequence": sequence, "head_dim": head_dim}
        return {"implementation": implementation, **shape, "precision": precision, "causal": self.causal}

    def compared(self) -> tuple[str, ...]:
        """Return the implementations, the student's among them where there is one."""
        return (*self.implementations, *(["yours"] if self.yours else []))

    def knobs(self) -> Iterator[dict[str, Any]]:
        every = product(self.precisions, self.head_dims, self.sequences, self.compared())
        for precision, head_dim, sequence, implementation in every:
            if implementation not in IN_PYTORCH or sequence**2 <= self.tiled_most:
                yield self.setting(implementation, sequence, head_dim, precision)

    def needed_capability(self, point: SimpleNamespace) -> tuple[int, int]:
        """Ampere's: torch's two kernels need it, and so does a product of bfloat16 in ours."""
        ours_in_bfloat16 = point.implementation in OURS and point.precision == "bfloat16"
        return (8, 0) if ours_in_bfloat16 or point.implementation in TORCHS else (0, 0)

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return Q, K, V and dO, and the most beside them in the point's first row; 0 where there is no formula."""
        if point.implementation not in SQUARES:
            return 0
        size = point.sequence, point.head_dim, WIDTH[point.precision]
        form = {"heads": point.heads, "causal": point.causal, "on_gpu": self.device == "cuda"}
        return 4 * point.heads * math.prod(size) + moment_bytes(point.implementation, self.first, *size, **form)

    def must_fit(self, point: SimpleNamespace) -> bool:
        """Lengths go on until nothing fits."""
        return point.sequence == min(self.sequences)


@dataclass(frozen=True, kw_only=True)
class Plain(Attention):
    """Attention that builds its N×N matrices, as one report timed it: batch 8, float32, no mask.

    CPUs do not compile, because it takes too long there.
    """

    SMALL: ClassVar[dict[str, Any]] = {"heads": 2, "sequences": (64, 128, 256, 512), "head_dims": (64,)}
    first: ClassVar[str] = "backward"  # its memory is measured before it is timed

    implementations: tuple[str, ...] = ("by_hand", "plain", "compiled")
    sequences: tuple[int, ...] = (256, 1024, 4096, 8192, 16384)
    head_dims: tuple[int, ...] = (16, 32, 64, 128)
    precisions: tuple[str, ...] = ("float32",)
    heads: int = 8
    causal: bool = False
    repeat_ms: int = 20

    def knobs(self) -> Iterator[dict[str, Any]]:
        return (knobs for knobs in super().knobs() if knobs["implementation"] != "compiled" or self.device == "cuda")


@dataclass(frozen=True, kw_only=True)
class Sweep(Attention):
    """Plain attention against ours, as one report swept it: batch 1, one head, causal."""

    SMALL: ClassVar[dict[str, Any]] = {
        "sequences": (8, 16),
        "head_dims": (16,),
    }

    sequences: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
    head_dims: tuple[int, ...] = (16, 32, 64, 128)
    precisions: tuple[str, ...] = PRECISIONS
    heads: int = 1
    repeat_ms: int = 8


@dataclass(frozen=True, kw_only=True)
class Race(Attention):
    """Sixteen heads, causal: ours against plain attention and torch's own kernels, forward, backward and both.

    A point adds clock: "launched" (as autograd calls it) or "captured" (replayed from a CUDA graph, without what the
    host takes to launch it; up to `captured` long, above which it makes no difference; not of tiles in PyTorch). The
    kernels for Hopper take d = 64.
    """

    SMALL: ClassVar[dict[str, Any]] = {
        "sequences": (16,),
        "head_dims": (16,),
        "heads": 2,
        "implementations": ("plain", "tiled", "flash"),
    }

    implementations: tuple[str, ...] = ("plain", "flash", "hopper", "sdpa_flash", "sdpa_cudnn")
    sequences: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384, 65536)
    head_dims: tuple[int, ...] = (64, 128)
    captured: int = 8192
    repeat_ms: int = 50

    def knobs(self) -> Iterator[dict[str, Any]]:
        points = [knobs for knobs in super().knobs() if knobs["implementation"] != "hopper" or knobs["head_dim"] == 64]
        yield from (knobs | {"clock": "launched"} for knobs in points)
        for knobs in points:
            is_kernel = knobs["implementation"] not in ("plain", *IN_PYTORCH)
            if self.device == "cuda" and is_kernel and knobs["sequence"] <= self.captured:
                yield knobs | {"clock": "captured"}


@dataclass(frozen=True, kw_only=True)
class Memory(Attention):
    """What is kept for backward and how much memory there is at most, by sequence length."""

    SMALL: ClassVar[dict[str, Any]] = {"sequences": (32, 64, 96), "head_dims": (16,), "heads": 1}
    first: ClassVar[str] = "backward"

    implementations: tuple[str, ...] = ("by_hand", "plain", "flash")
    sequences: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384, 32768, 65536)


@dataclass(frozen=True, kw_only=True)
class Errors(Attention):
    """Outputs and gradients against float64, over random shapes; and whether a second run gives the same bits.

    A point has queries and keys in place of sequence. The kernels for Hopper are left out where others stand in.
    """

    SMALL: ClassVar[dict[str, Any]] = {
        "implementations": ("tiled", "flash"),
        "shapes": ((2, 33, 47, 16, True), (1, 47, 33, 24, False), (1, 1, 40, 128, True)),
        "precisions": PRECISIONS,
    }

    implementations: tuple[str, ...] = ("tiled", "flash", "hopper")
    precisions: tuple[str, ...] = PRECISIONS
    shapes: tuple[tuple[int, int, int, int, bool], ...] = (  # heads, queries, keys, head_dim, causal
        (2, 1024, 1024, 64, True),
        (2, 1000, 1000, 64, True),
        (3, 1537, 513, 64, True),
        (3, 513, 1537, 64, False),
        (2, 1000, 1, 64, False),
        (2, 777, 777, 128, True),
        (1, 4097, 4097, 64, True),
        (2, 700, 700, 80, True),
        (2, 300, 1700, 16, True),
        (1, 1, 1000, 16, True),
    )
    tiled_most: int = 2**19

    def knobs(self) -> Iterator[dict[str, Any]]:
        names = ("precision", "heads", "queries", "keys", "head_dim", "causal", "implementation")
        for precision, shape, implementation in product(self.precisions, self.shapes, self.compared()):
            _, queries, keys, head_dim, causal = shape
            is_hoppers = causal and queries == keys and head_dim == 64 and precision == "bfloat16"
            fits = dict.fromkeys(IN_PYTORCH, queries * keys <= self.tiled_most) | {"hopper": is_hoppers}
            if fits.get(implementation, True):
                yield dict(zip(names, (precision, *shape, implementation), strict=True))

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return 0: no shape needs a gigabyte."""
        return 0

    def must_fit(self, point: SimpleNamespace) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Trial(Attention):
    """Attentions that claim to be FlashAttention-2, and what each one shows under the same checks."""

    SMALL: ClassVar[dict[str, Any]] = {"sequences": (48,)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    sequences: tuple[int, ...] = (512,)
    head_dims: tuple[int, ...] = (16,)
    precisions: tuple[str, ...] = ("float32",)
    heads: int = 2

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield self.setting("flash", self.sequences[0], self.head_dims[0], self.precisions[0]) | {"variant": variant}
