"""Knobs of lab 09: collectives by size, ranks and backend; nccl-tests; a ring by hand; wrong benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.theory.sizes import KIB, MIB
from lessons.collectives.theory import COLLECTIVES

BACKENDS = ("nccl", "gloo")
CLOCKS = ("in flight", "one call")
METHODS = ("ours", "library", "yours")
# The first is right; the next are the suspects of "find the bug".
VARIANTS = ("right", "unsynchronised", "wrong_factor", "no_all_gather")
_COUNTS = (2, 3, 4, 6, 8)


@dataclass(frozen=True, kw_only=True)
class Collectives(Plan):
    """What every plan of this lab shares: at least two ranks, and how often a call is repeated.

    `warm_ups` and `repeats` count repetitions; each is of `in_flight` calls where the clock is "in flight".
    """

    lab: ClassVar[str] = "collectives"
    worker: ClassVar[str] = "lessons.collectives.worker"
    SMALL: ClassVar[dict[str, Any]] = {"warm_ups": 1, "repeats": 3}
    ALLOWED: ClassVar[dict[str, tuple]] = {"collective": COLLECTIVES}
    FEW: ClassVar[int | None] = 2
    least: ClassVar[int] = 2

    collectives: tuple[str, ...] = COLLECTIVES
    warm_ups: int = 2
    repeats: int = 7

    def validate(self) -> None:
        if self.gpus < 2:
            raise PlanError(f"gpus={self.gpus}: a collective needs at least two ranks")

    def _rank_counts(self) -> tuple[int, ...]:
        return tuple(count for count in _COUNTS if count <= self.gpus)

    @property
    def backend(self) -> str:
        """What moves the tensors of the plan's device."""
        return "nccl" if self.device == "cuda" else "gloo"

    def setting(self, size_kib: int, ranks: int, collective: str = "all-reduce", backend: str = "") -> dict[str, Any]:
        """Return a point's knobs: backend, collective, ranks, bytes (of the whole message), and calls in flight."""
        backend = backend or self.backend
        size = KIB * size_kib
        in_flight = 20 if backend == "nccl" else max(1, min(8, MIB // size))  # 20 is what nccl-tests makes
        return {"backend": backend, "collective": collective, "ranks": ranks, "bytes": size, "in_flight": in_flight}


@dataclass(frozen=True, kw_only=True)
class Sweep(Collectives):
    """Every collective, by size and number of ranks, over NCCL (device tensors) and gloo (host tensors).

    A point adds clock: "in flight" (calls that follow each other without waiting, as nccl-tests times them) or "one
    call" (a fence, one call, and until its data are there). "one call" is taken on nodes with GPUs, since gloo's calls
    return when they are done, and up to 1 MiB; gloo is taken up to `gloo_kib`: both would only cost time above.
    """

    SMALL: ClassVar[dict[str, Any]] = {"sizes_kib": (1, 4, 16, 64, 256, 1024), "gloo_kib": 1024}

    backends: tuple[str, ...] = ()  # both on GPUs, gloo elsewhere
    counts: tuple[int, ...] = ()  # numbers of ranks: 2, 3, 4, 6 and 8 as far as there are GPUs
    sizes_kib: tuple[int, ...] = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
    gloo_kib: int = 65536

    def chosen(self) -> dict[str, Any]:
        return {"backends": self.backends or self._available(), "counts": self.counts or self._rank_counts()}

    def validate(self) -> None:
        super().validate()
        for backend in self.backends:
            self.require("backend", backend, self._available())
        for count in self.counts:
            if not 2 <= count <= self.gpus:
                raise PlanError(f"counts={self.counts}: with gpus={self.gpus} a count is 2 to {self.gpus}")

    def _available(self) -> tuple[str, ...]:
        return BACKENDS if self.device == "cuda" else ("gloo",)

    def knobs(self) -> Iterator[dict[str, Any]]:
        for backend in self.backends:
            for ranks in self.counts:
                for collective in self.collectives:
                    for size in self.sizes_kib:
                        if backend == "nccl" or size <= self.gloo_kib:
                            for clock in CLOCKS if self.device == "cuda" and KIB * size <= MIB else CLOCKS[:1]:
                                yield self.setting(size, ranks, collective, backend) | {"clock": clock}


@dataclass(frozen=True, kw_only=True)
class NcclTests(Collectives):
    """Ours and nccl-tests' programs in one run, collective after collective, from `sizes_kib` on.

    A point adds source: "ours" (one size), or "nccl-tests" (all sizes: `bytes` is the largest). The programs are looked
    for in the folder LABKIT_NCCL_TESTS, then on PATH; each drives all GPUs from one process, a thread per GPU.
    """

    SMALL: ClassVar[dict[str, Any]] = {"sizes_kib": (64, 256, 1024)}

    sizes_kib: tuple[int, ...] = (65536, 262144, 1048576)
    repeats: int = 9

    def validate(self) -> None:
        super().validate()
        first = self.sizes_kib[0]
        if any(size != first * self.step**i for i, size in enumerate(self.sizes_kib)) or self.step < 2:
            raise PlanError(f"sizes_kib={self.sizes_kib}: nccl-tests takes a first size and a whole factor")

    @property
    def step(self) -> int:
        """How many times as large each size is as the one before."""
        return self.sizes_kib[1] // self.sizes_kib[0] if len(self.sizes_kib) > 1 else 2

    def knobs(self) -> Iterator[dict[str, Any]]:
        for collective in self.collectives:
            for size in self.sizes_kib:
                yield self.setting(size, self.gpus, collective) | {"clock": CLOCKS[0], "source": "ours"}
            largest = self.setting(self.sizes_kib[-1], self.gpus, collective)
            yield largest | {"clock": CLOCKS[0], "source": "nccl-tests"}


@dataclass(frozen=True, kw_only=True)
class Ring(Collectives):
    """A ring all-reduce made of sends and receives, beside the library's: any N, and lengths that N does not divide.

    `yours` is the file of a `ring_step` that somebody wrote; then its ring is a third method.
    A point adds method ("ours", "library", "yours") and elements (float32).
    """

    FEW: ClassVar[int | None] = 3
    SMALL: ClassVar[dict[str, Any]] = {"lengths": (1, 1000, 2**14 + 1, 2**18 + 1), "repeats": 9}

    lengths: tuple[int, ...] = (1, 1000, 2**14 + 1, 2**18 + 1, 2**22 + 1, 2**26 + 1)
    counts: tuple[int, ...] = ()
    yours: str = ""

    def chosen(self) -> dict[str, Any]:
        return {"counts": self.counts or self._rank_counts()}

    def validate(self) -> None:
        super().validate()
        if min(self.lengths) < 1:
            raise PlanError(f"lengths={self.lengths}: there is something to reduce from 1 element on")

    def knobs(self) -> Iterator[dict[str, Any]]:
        for ranks in self.counts:
            for elements in self.lengths:
                for method in METHODS if self.yours else METHODS[:2]:
                    setting = self.setting(1, ranks) | {"bytes": 4 * elements, "in_flight": 1, "clock": "one call"}
                    yield setting | {"method": method, "elements": elements}


@dataclass(frozen=True, kw_only=True)
class Trial(Collectives):
    """Benchmarks that look right, and what gives each away; all ranks take part. A point adds variant."""

    SMALL: ClassVar[dict[str, Any]] = {"size_kib": 4096}
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    size_kib: int = 262144

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            # With two ranks an all-reduce's factor is 1: only there would leaving it out make no difference.
            collective = "all-gather" if variant == "wrong_factor" else "all-reduce"
            setting = self.setting(self.size_kib, self.gpus, collective) | {"in_flight": 1, "clock": CLOCKS[1]}
            yield setting | {"variant": variant}
