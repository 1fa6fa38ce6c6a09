"""Plan: a frozen set of knobs that checks itself, and the points that it expands into."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from labkit import node
from labkit.engine.errors import NotEnoughGpus, PlanError

# Without GPUs, processes stand in for them. More than eight on a laptop measure only its scheduler.
MOST_CPU_PROCESSES = 8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The knobs of one launch; every combination that it measures is a point.

    A subclass names its `lab`, the module of its `worker`, adds knobs, checks them in `check` and yields them
    in `knobs`. A plan made here fits this machine or says why not; a plan read from a recorded run (`from_json`)
    keeps the device and the GPU count of the machine that measured it.

    Raises PlanError (a knob is wrong; the message lists what is allowed) or NotEnoughGpus.
    """

    lab: ClassVar[str]
    worker: ClassVar[str]
    least: ClassVar[int] = 1  # GPUs without which the plan means nothing: a node with fewer runs it on its CPU

    gpus: int = 0  # worker processes, one a GPU; 0 takes every visible GPU, or two processes on a CPU
    seeds: tuple[int, ...] = (0,)
    size: str = "custom"  # small, full, or custom where the knobs were set one by one
    device: str = "auto"  # cuda or cpu; auto asks this machine

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), list):
                object.__setattr__(self, field.name, tuple(value))
        if self.device == "auto":
            self._settle(node.here())
        self.require("device", self.device, ("cuda", "cpu"))
        if self.gpus < 1:
            raise PlanError(f"gpus={self.gpus}: a run needs at least one worker")
        if not (isinstance(self.seeds, tuple) and self.seeds):
            raise PlanError(f"seeds={self.seeds!r}: a plan needs at least one seed, such as (0, 1, 2)")
        self.check()

    def _settle(self, here: node.Node) -> None:
        """Choose the device and the number of workers that this machine allows."""
        device = "cuda" if self.on_gpus() else "cpu"
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "gpus", self.gpus or (len(here.gpus) if self.on_gpus() else 2))
        if device == "cuda" and self.gpus > len(here.gpus):
            raise NotEnoughGpus(f"gpus={self.gpus}: this node shows {len(here.gpus)} GPU(s), so 1 to {len(here.gpus)}")
        if device == "cpu" and self.gpus > MOST_CPU_PROCESSES:
            few = f"{len(here.gpus)} GPU(s), and this plan needs {self.least}" if here.has_gpus else "no GPU"
            raise NotEnoughGpus(
                f"gpus={self.gpus}: this node has {few}; up to {MOST_CPU_PROCESSES} processes stand in for GPUs"
            )

    @classmethod
    def on_gpus(cls) -> bool:
        """Say whether this node has the GPUs that the plan needs; where not, CPU processes stand in for them."""
        return len(node.here().gpus) >= cls.least

    @classmethod
    def few(cls, count: int) -> int:
        """Give `count` workers for a small run; fewer where the node has GPUs for the plan, but not as many."""
        return min(count, len(node.here().gpus)) if cls.on_gpus() else count

    def check(self) -> None:
        """Raise PlanError where knobs of the subclass contradict each other."""

    def knobs(self) -> Iterator[dict[str, Any]]:
        """Yield the knob settings to measure, in order."""
        yield {}

    @staticmethod
    def require(name: str, value: Any, allowed: tuple) -> None:
        """Raise PlanError, listing what is known, unless `value` is one of `allowed`."""
        if value not in allowed:
            raise PlanError(f"{name}={value!r} is not known; it is one of {', '.join(map(str, allowed))}")

    @classmethod
    def small(cls, **knobs) -> Self:
        """Give the plan that two CPU cores measure in seconds, along the same code path."""
        return cls(size="small", **knobs)

    @classmethod
    def full(cls, **knobs) -> Self:
        """Give the plan of the published reports' size, for GPUs."""
        return cls(size="full", **knobs)

    @classmethod
    def sized(cls, size: str = "auto", *, gpus: int = 0, seeds: int | tuple[int, ...] = 0, **knobs) -> Self:
        """Give `small()` or `full()`; auto takes full where it runs on GPUs. `seeds` counts them; 0: the default."""
        cls.require("size", size, ("auto", "small", "full"))
        if size == "auto":
            size = "full" if cls.on_gpus() else "small"
        if gpus:
            knobs["gpus"] = gpus
        if seeds:
            knobs["seeds"] = tuple(range(seeds)) if isinstance(seeds, int) else seeds
        return cls.small(**knobs) if size == "small" else cls.full(**knobs)

    def points(self) -> list[SimpleNamespace]:
        """Give every knob setting with every seed; seeds vary slowest, so that drift does not favour a setting."""
        settings = [(seed, knobs) for seed in self.seeds for knobs in self.knobs()]
        return [SimpleNamespace(point=i, seed=seed, **knobs) for i, (seed, knobs) in enumerate(settings)]

    @property
    def name(self) -> str:
        """The plan's own name, as in the run folder: lower case."""
        return type(self).__name__.lower()

    def to_json(self) -> str:
        kind = f"{type(self).__module__}:{type(self).__qualname__}"
        return json.dumps({"plan": kind, "worker": self.worker, **dataclasses.asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read a plan back; of a file's module names, only labkit's own are imported.

        Raises PlanError where the text is no plan or names a class that is not known here.
        """
        try:
            knobs = json.loads(text)
            module, _, kind = knobs.pop("plan").partition(":")
            knobs.pop("worker", None)
            if re.fullmatch(r"labkit\.(labs\.\w+\.plan|engine\.call)", module):
                importlib.import_module(module)
            for known in _subclasses(Plan):
                if (known.__module__, known.__qualname__) == (module, kind):
                    return known(**knobs)
        except PlanError:
            raise
        except (ValueError, KeyError, AttributeError, TypeError, ImportError) as error:
            raise PlanError(f"not a plan: {text[:80]!r} ({error})") from error
        raise PlanError(f"the plan {module}:{kind} is not known to this workbook")


def _subclasses(cls: type) -> Iterator[type]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
