"""Knobs of lab 02: how one host tensor reaches every GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from labkit.engine.errors import PlanError
from labkit.engine.launch_settings import allowed_gpus
from labkit.engine.plan import CONTEXT_BYTES, Plan
from labkit.theory.sizes import MIB

WHOLE = ("direct", "staged", "nccl")  # methods that move the tensor in one piece
CHUNKED = ("pipelined", "scatter_all_gather")
SHARED = ("links", "scatter_all_gather")  # every GPU pulls its own share of the tensor, over its own host link
METHODS = ("links", *WHOLE, "pipelined", "scatter_all_gather")
_MEMORIES = ("pageable", "pinned")
_PIECE = 2**26  # elements of a pattern that are made at a time, as int64 on the way (worker/trial.py)


@dataclass(frozen=True, kw_only=True)
class Tensor(Plan):
    """What both plans of this lab share: one float32 host tensor of `mib` MiB, `warm_ups` and `repeats` per point."""

    lab: ClassVar[str] = "broadcast"
    worker: ClassVar[str] = "lessons.broadcast.worker"
    SMALL: ClassVar[dict[str, Any]] = {"repeats": 5}
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {f"{mib} MiB": {"mib": mib} for mib in (2048, 1024, 512, 256)}
    least: ClassVar[int] = 2
    one_node: ClassVar[bool] = True

    mib: int = 4096
    warm_ups: int = 1
    repeats: int = 7

    @property
    def elements(self) -> int:
        """float32 values in the tensor."""
        return self.mib * MIB // 4

    def validate(self) -> None:
        if self.gpus < 2:
            raise PlanError(f"gpus={self.gpus}: a broadcast needs at least two")
        if self.mib < 1 or self.repeats < 1 or self.warm_ups < 0:
            raise PlanError(f"mib={self.mib}, repeats={self.repeats}, warm_ups={self.warm_ups}: at least 1, 1 and 0")

    def require_memory(self, memory: str) -> None:
        """Raise PlanError for a memory that is not known, or that a machine without GPUs cannot have."""
        self.require("memory", memory, _MEMORIES)
        if memory == "pinned" and self.device == "cpu":
            why = "pages are pinned for a GPU, and this plan runs on the CPU"
            raise PlanError(f"memory='pinned': {why}; take 'pageable'")

    @classmethod
    def divisible(cls, mib: int, gpus: int) -> int:
        """Return the most MiB, up to `mib`, that divide among `gpus` GPUs (0: all that are allowed): 4095 for three."""
        return mib - mib % (gpus or max(2, allowed_gpus()))

    def require_chunks(self, chunks: int) -> None:
        """Raise PlanError unless `chunks` equal chunks fit every GPU's share of the tensor."""
        if chunks < 1 or self.elements % (chunks * self.gpus):
            allowed = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if self.elements % (n * self.gpus) == 0]
            counts = (
                f"these do: {', '.join(map(str, allowed))}" if allowed else "no usual count does: choose another mib"
            )
            shares = f"{self.gpus} shares of {self.elements} elements"
            raise PlanError(f"chunks={chunks} does not divide each of {shares}; {counts}")

    @classmethod
    def small(cls, **knobs) -> Self:
        gpus = knobs.get("gpus") or cls.few(4)
        return super().small(**{"gpus": gpus, "mib": cls.divisible(16, gpus)} | knobs)

    @classmethod
    def full(cls, **knobs) -> Self:
        if knobs.get("size") == "middle" or "mib" not in knobs:
            knobs["mib"] = cls.divisible(knobs.get("mib", cls.mib), knobs.get("gpus", 0))
        return super().full(**knobs)

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return what is on a GPU of another rank than 0: its copy and reference, and those of rank 0, which drives it.

        Comparing two makes a byte an element. Each process keeps what it made patterns in; rank 0 has its context, too.
        """
        return 17 * self.elements + 2 * 8 * min(self.elements, _PIECE) + CONTEXT_BYTES


@dataclass(frozen=True, kw_only=True)
class Sweep(Tensor):
    """Every method with a pageable and a pinned source, the chunked ones with several chunk counts.

    `links` is the yardstick: all GPUs pull their own shares simultaneously, each over its own link; nothing is
    forwarded. `chunks` cut the tensor for pipelined, and each GPU's share of it for scatter_all_gather and links.
    """

    SMALL: ClassVar[dict[str, Any]] = {"chunks": (4, 16)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"method": METHODS}

    methods: tuple[str, ...] = METHODS
    memories: tuple[str, ...] = _MEMORIES
    chunks: tuple[int, ...] = (4, 8, 16, 32, 64, 128)

    def validate(self) -> None:
        super().validate()
        for memory in self.memories:
            self.require_memory(memory)
        for chunks in self.chunks:
            self.require_chunks(chunks)

    def knobs(self) -> Iterator[dict[str, Any]]:
        for method in self.methods:
            for memory in self.memories:
                for chunks in (1,) if method in WHOLE else self.chunks:
                    yield {"method": method, "memory": memory, "chunks": chunks}

    @classmethod
    def small(cls, **knobs) -> Self:
        memories = _MEMORIES if cls.on_gpus() else ("pageable",)  # without a GPU nothing can be pinned for one
        return super().small(**{"memories": memories} | knobs)


@dataclass(frozen=True, kw_only=True)
class Trial(Tensor):
    """Functions with one signature, measured and logged copy by copy: the workbook's, a student's, a broken one.

    A function is named "methods.pipelined", "bugs.early_forward", or "answers.pipelined" (a file that the workbook's
    cell magic saved, in `answers`).
    """

    SMALL: ClassVar[dict[str, Any]] = {"repeats": 3, "chunks": 4}

    functions: tuple[str, ...] = ("methods.pipelined",)
    answers: str = ""
    memory: str = "pinned"
    chunks: int = 16

    def validate(self) -> None:
        super().validate()
        self.require_memory(self.memory)
        self.require_chunks(self.chunks)
        for function in self.functions:
            self.require("function's home", function.partition(".")[0], ("methods", "bugs", "answers"))

    def knobs(self) -> Iterator[dict[str, Any]]:
        for function in self.functions:
            yield {"function": function, "memory": self.memory, "chunks": self.chunks}

    @classmethod
    def small(cls, **knobs) -> Self:
        memory = "pinned" if cls.on_gpus() else "pageable"
        return super().small(**{"memory": memory} | knobs)
