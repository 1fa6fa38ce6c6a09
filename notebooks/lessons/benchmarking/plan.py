"""Knobs of lab 06: timed steps, profiles, launches by depth and width, and broken benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from labkit.theory.shapes import Model
from labkit.theory.step_memory import Shape, ledger
from labkit.theory.transformer import NAMES, SIZES, SMALL_VOCABULARY, VOCABULARY, transformer
from lessons.benchmarking.theory.device import SITUATIONS as SITUATIONS  # steps that the exercise's check feeds

PRECISIONS = ("float32", "tf32", "autocast")
PRODUCTS = ("float32", "tf32", "bfloat16")  # of matrices alone: autocast's products are bfloat16's
MODES = ("eager", "graph", "compiled", "compiled_graph")
PHASES = ("forward", "both", "step")  # both: forward and backward; step: these and AdamW
VARIANTS = ("right", "unsynchronised", "first_inside", "dropout_on")
# For CPUs: a sixteenth as wide, a seventh as deep, two heads each; the five keep their order in width and in depth.
SMALL_SIZES = {name: (hidden // 16, inner // 16, layers // 7, 2) for name, (hidden, inner, layers, _) in SIZES.items()}
_SEQUENCE = 128
_SMALL_SEQUENCE = 16  # a CPU without bfloat16 products emulates autocast's, and takes tens of times as long
REFERENCE_LAYERS = 3  # kernels so short that the host alone sets the time
_HEAD = 64  # width of a head where a sweep chooses the number of heads


@dataclass(frozen=True, kw_only=True)
class Benchmark(Plan):
    """What every plan of this lab shares: one GPU measures the course's transformer, batch 4, context 128.

    Precisions: float32, tf32, and autocast (bfloat16 products over float32 weights). Modes: eager; graph, replayed
    from a CUDA graph; compiled, every block by torch.compile; compiled_graph, both. A CPU has no CUDA graph, and to
    compile for it takes long: there every plan runs eager.
    """

    lab: ClassVar[str] = "benchmarking"
    worker: ClassVar[str] = "lessons.benchmarking.worker"
    SMALL: ClassVar[dict[str, Any]] = {"warm_ups": 2, "repeats": 3}
    ALLOWED: ClassVar[dict[str, tuple]] = {"model": ("", *NAMES), "precision": PRECISIONS, "mode": MODES}
    most: ClassVar[int | None] = 1

    samples: ClassVar[int] = 4

    gpus: int = 1
    warm_ups: int = 3
    repeats: int = 10

    def validate(self) -> None:
        if min(self.warm_ups, self.repeats) < 1:
            raise PlanError(f"warm_ups={self.warm_ups}, repeats={self.repeats}: at least 1 each")

    @property
    def vocabulary(self) -> int:
        return SMALL_VOCABULARY if self.size == "small" else VOCABULARY

    @property
    def sequence(self) -> int:
        return _SMALL_SEQUENCE if self.size == "small" else _SEQUENCE

    def dimensions(self, model: str) -> tuple[int, int, int, int]:
        """Return hidden, inner, layers and heads of one of the five sizes, as this plan runs it."""
        return (SMALL_SIZES if self.size == "small" else SIZES)[model]

    def shape(self, model: str) -> Model:
        """Return the parameters of one of the five sizes, as this plan runs it."""
        hidden, inner, layers, _ = self.dimensions(model)
        return transformer(hidden, inner, layers, self.vocabulary)

    def phase_bytes(self, phase: str, precision: str, hidden: int, inner: int, layers: int, heads: int) -> int:
        """Return what the model of these dimensions holds at most in an eager phase, one of step_memory.PHASES."""
        narrow, gpu = "bfloat16" if precision == "autocast" else "float32", self.device == "cuda"
        sizes = (self.vocabulary, hidden, inner, layers, heads, self.samples, self.sequence)
        return sum(ledger(Shape(*sizes, narrow, gpu), phase).values())


@dataclass(frozen=True, kw_only=True)
class Steps(Benchmark):
    """Forward, forward + backward, and whole AdamW steps of the five sizes; every iteration is a row.

    The first point is the first work of a fresh process. Modes other than eager are measured in bfloat16, without
    forward + backward. To save time, only float32 has all warm-ups and repeats; the others have about half of them.
    """

    SMALL: ClassVar[dict[str, Any]] = {"precisions": ("float32", "autocast")}

    models: tuple[str, ...] = NAMES
    precisions: tuple[str, ...] = PRECISIONS
    warm_ups: int = 5

    def often(self, precision: str) -> dict[str, Any]:
        """Return the warm-ups and repeats of a point, as `Worker.time` takes them."""
        if precision == "float32":
            return {"warm_ups": self.warm_ups, "repeats": self.repeats}
        return {"warm_ups": max(1, self.warm_ups // 2), "repeats": self.repeats // 2 + 1}

    def knobs(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for precision in self.precisions:
                for mode in MODES:
                    if mode == "eager" or (self.device == "cuda" and precision == "autocast"):
                        yield {"model": model, "precision": precision, "mode": mode}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return what the first phase needs, the forward: one that fits is a row. A graph's phases have to fit, all.

        Of a compiled forward only the weights are known. A step's graph has a pool of its own for the gradients, beside
        those of its rehearsals; weights and two moments have the rest of five times the weights.
        """
        weights = 4 * self.shape(point.model).parameters
        if point.mode.endswith("graph"):
            return 5 * weights
        if point.mode == "compiled":
            return weights
        return self.phase_bytes("forward", point.precision, *self.dimensions(point.model))

    def must_fit(self, point: SimpleNamespace) -> bool:
        return point.model == self.models[0]


@dataclass(frozen=True, kw_only=True)
class Products(Benchmark):
    """Products of two square matrices by precision, on all GPUs simultaneously: the most that a GPU multiplies.

    `side` counts rows for the tensor cores' precisions; float32, which they do not multiply, takes half of it.
    """

    most: ClassVar[int | None] = None
    SMALL: ClassVar[dict[str, Any]] = {"side": 1024, "precisions": ("float32",)}
    ALLOWED: ClassVar[dict[str, tuple]] = {"precision": PRODUCTS}

    gpus: int = 0
    side: int = 16384
    precisions: tuple[str, ...] = PRODUCTS
    warm_ups: int = 10
    repeats: int = 15

    def knobs(self) -> Iterator[dict[str, Any]]:
        for precision in self.precisions:
            yield {"precision": precision, "side": self.side // 2 if precision == "float32" else self.side}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return the bytes of two factors and their product."""
        return 3 * point.side**2 * (2 if point.precision == "bfloat16" else 4)


@dataclass(frozen=True, kw_only=True)
class Soak(Benchmark):
    """Products in bfloat16 (on a CPU float32) without a pause, on all GPUs, beside a pattern in most of their memory.

    `make card ARGS="--soak 15"` launches it for so many minutes: does the rate fall as a GPU gets warm, and does the
    memory still hold at the end what was written at the start? A point is a minute.
    """

    worker: ClassVar[str] = "lessons.benchmarking.worker.soak"
    most: ClassVar[int | None] = None
    SMALL: ClassVar[dict[str, Any]] = {"side": 256, "minutes": 2, "minute_s": 0.3}

    gpus: int = 0
    side: int = 16384
    minutes: int = 15
    minute_s: float = 60.0
    memory_share: float = 0.8

    def knobs(self) -> Iterator[dict[str, Any]]:
        for minute in range(self.minutes):
            yield {"minute": minute}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return the bytes of two factors and their product; the pattern takes a share of what is free."""
        return 3 * self.side**2 * 2


@dataclass(frozen=True, kw_only=True)
class Profiles(Benchmark):
    """Each phase under the profiler: kernels, operators with their FLOP and bytes, a drawing, attention's parts.

    All phases are timed before the first is profiled: see `Launches`.
    """

    SMALL: ClassVar[dict[str, Any]] = {
        "precisions": ("float32",),
        "drawn": ("small float32", "2.7b float32"),
        "steps": 2,
    }

    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {
        name: {"models": ("small", name), "drawn": ("small autocast", f"{name} float32")}
        for name in reversed(NAMES[1:-1])
    } | {"small": {"models": ("small",), "drawn": ("small autocast", "small float32")}}

    models: tuple[str, ...] = ("small", "2.7b")  # the last one's kernels and operators are shown one by one
    precisions: tuple[str, ...] = ("float32", "autocast")
    steps: int = 5  # forwards that are profiled, one after another; of the longer phases one
    drawn: tuple[str, ...] = ("small autocast", "2.7b float32")  # forwards that are drawn, kernel by kernel
    repeats: int = 8

    def knobs(self) -> Iterator[dict[str, Any]]:
        for profiled in (False, True):
            for model in self.models:
                for precision in self.precisions:
                    yield {"model": model, "precision": precision, "mode": "eager", "profiled": profiled}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return self.phase_bytes("steady step", point.precision, *self.dimensions(point.model))


@dataclass(frozen=True, kw_only=True)
class Launches(Benchmark):
    """Forwards in bfloat16 by depth, by width, and of the five sizes: host's time, GPU's time, and kernels.

    A point's `axis` is "layers", "width" or "model"; the sweep of layers has the width of the smallest size. Before
    every timed forward a reference of three such layers says how fast the host is just then.

    Kernels are counted (`profiled`) when every forward has been timed. The profiler's hooks outlive it and slow each
    later launch of the process (pytorch issue 144455): on an H100 the small size's forward took 14 ms before the first
    profile and 18 to 19 ms after it.
    """

    SMALL: ClassVar[dict[str, Any]] = {"depths": (1, 2, 4, 8), "widths": (32, 64, 128, 256), "width_layers": 2}

    depths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 48)
    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 6144, 8192)
    width_layers: int = 6
    models: tuple[str, ...] = NAMES

    def knobs(self) -> Iterator[dict[str, Any]]:
        hidden, inner, _, heads = self.dimensions("small")
        shapes = [("layers", "", hidden, inner, depth, heads) for depth in self.depths]
        for width in self.widths:
            shapes.append(("width", "", width, 4 * width, self.width_layers, max(2, width // _HEAD)))
        shapes += [("model", model, *self.dimensions(model)) for model in self.models]
        yield from (self._point(*shape, profiled=False) for shape in shapes)
        reference = ("reference", "", hidden, inner, REFERENCE_LAYERS, heads)
        yield from (self._point(*shape, profiled=True) for shape in [*shapes, reference])

    def _point(self, axis: str, model: str, hidden: int, inner: int, layers: int, heads: int, **how: Any) -> dict:
        shape = {"hidden": hidden, "inner": inner, "layers": layers, "heads": heads}
        return {"axis": axis, "model": model, **shape, "precision": "autocast", **how}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        return self.phase_bytes("forward", point.precision, point.hidden, point.inner, point.layers, point.heads)

    def must_fit(self, point: SimpleNamespace) -> bool:
        """Widths and sizes go on until nothing fits."""
        return point.axis in ("layers", "reference")


@dataclass(frozen=True, kw_only=True)
class Trial(Benchmark):
    """Benchmarks of one model's forward and backward, the right one and some with a bug; no size but its own."""

    SMALL: ClassVar[dict[str, Any]] = {"width": 192, "rows": 192}
    ALLOWED: ClassVar[dict[str, tuple]] = {"variant": VARIANTS}

    variants: tuple[str, ...] = ("right",)
    width: int = 2048
    rows: int = 2048  # samples of a batch

    @classmethod
    def small(cls, **knobs) -> Self:
        """Return the step of full size on a GPU, too: a smaller one ends before a clock that does not wait."""
        plan = super().small(**knobs)
        return plan if plan.device == "cpu" else super().small(**{"width": cls.width, "rows": cls.rows} | knobs)

    def knobs(self) -> Iterator[dict[str, Any]]:
        for variant in self.variants:
            yield {"variant": variant}


@dataclass(frozen=True, kw_only=True)
class Answer(Benchmark):
    """The student's `timed`, called with steps of a simulated device, whose right times are known exactly."""

    answers: str = ""  # the folder of the student's answers

    def knobs(self) -> Iterator[dict[str, Any]]:
        for situation in SITUATIONS:
            yield {"situation": situation}


@dataclass(frozen=True, kw_only=True)
class Clocks(Benchmark):
    """A forward of the smallest size, by the clock of `yours`, the file of a student's `timed`, and by the workers'."""

    yours: str = ""

    def knobs(self) -> Iterator[dict[str, Any]]:
        precision = "autocast" if self.device == "cuda" else "float32"
        yield {"model": "small", "precision": precision, "mode": "eager"}
