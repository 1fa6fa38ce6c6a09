"""Plan: a frozen set of knobs that checks itself, and the points that it expands into."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeGuard

from labkit import node
from labkit.engine.errors import NotEnoughGpus, PlanError
from labkit.engine.launch_settings import allowed_gpus, gpus_of_a_node
from labkit.repository import PLAN_MODULES, RECORDED

MOST_CPU_PROCESSES = 8  # stand in for GPUs where there are none; more on a laptop measure only its scheduler
MOST_WORKERS = 1024  # of any plan, also of one that was recorded: no node has as many GPUs
SIZES = ("auto", "small", "full", "recorded")
PARAMETERS = ("size", "gpus", "seeds")  # of every notebook, and what `Plan.sized` takes
LARGEST_SEED = 2**32 - 1  # workers add to a seed and multiply it by up to a million, and torch's own end at 2**64
# Of a GPU's free memory: what a process holds before its first tensor (645 MB on an H200 with torch 2.11), and the
# share of the rest that is left to the allocator's gaps and the libraries' buffers. Ledgers are 3 % low at most.
CONTEXT_BYTES, MEMORY_MARGIN = 0.65e9, 0.05
MOST_SEEDS = 1000  # a sweep of seconds, repeated more often than this, is a slip of the keyboard


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The knobs of one launch; every combination that it measures is a point.

    A subclass names its `lab`, the module of its `worker`, adds knobs, checks them in `validate`, yields them in
    `knobs`, and lists in ALLOWED what a point's knob may be. A plan made here fits this machine or says why not; a plan
    read from a recorded run (`from_json`) keeps the device and the GPU count of the machine that measured it.

    Raises PlanError (a knob is wrong; the message lists what is allowed) or NotEnoughGpus.
    """

    lab: ClassVar[str]
    worker: ClassVar[str]
    least: ClassVar[int] = 1  # GPUs without which the plan means nothing: a node with fewer runs it on its CPU
    most: ClassVar[int | None] = None  # workers that the plan can use; `sized` starts no more. None: any number
    one_node: ClassVar[bool] = False  # whether a process uses GPUs of other ranks, so that all must be on its node
    several_nodes: ClassVar[bool] = False  # whether its lesson launches it on several nodes: no agent here serves it
    ALLOWED: ClassVar[dict[str, tuple]] = {}  # by a point's knob; a base's hold, too
    # Knobs of either size that are not the class's defaults; those of its bases hold, too. FEW: workers of a small run.
    SMALL: ClassVar[dict[str, Any]] = {}
    FULL: ClassVar[dict[str, Any]] = {}
    # Sizes for GPUs that hold less than the full one needs, the largest first: by name the knobs that differ from full.
    MIDDLE: ClassVar[dict[str, dict[str, Any]]] = {}
    FEW: ClassVar[int | None] = None
    recording: ClassVar[str] = ""  # at size="recorded": the run below data/recorded that stands for a launch
    left_out: ClassVar[str] = ""  # of a middle size: why it was taken, and its name

    gpus: int = 0  # worker processes, one a GPU; 0 takes every visible GPU, or two processes on a CPU
    seeds: tuple[int, ...] = (0,)
    size: str = "custom"  # small, middle, full, or custom where the knobs were set one by one
    device: str = "auto"  # cuda or cpu; auto asks this machine

    def __post_init__(self) -> None:
        object.__setattr__(self, "_given", dict(vars(self)))  # what it was made with: some knobs are chosen below
        self._hold({name: _as_tuple(value) for name, value in vars(self)["_given"].items()})
        if not _is_whole(self.gpus):
            raise PlanError(f"gpus={self.gpus!r} is not a whole number")
        if self.device == "auto":
            self._settle(node.here())
        self.require("device", self.device, ("cuda", "cpu"))
        if not 1 <= self.gpus <= MOST_WORKERS:
            bound = "needs at least one worker" if self.gpus < 1 else f"has at most {MOST_WORKERS} workers"
            raise PlanError(f"gpus={self.gpus}: a run {bound}")
        if not (isinstance(self.seeds, tuple) and self.seeds and all(map(_is_whole, self.seeds))):
            raise PlanError(f"seeds={self.seeds!r}: a plan needs at least one seed, such as (0, 1, 2)")
        if not 0 <= min(self.seeds) <= max(self.seeds) <= LARGEST_SEED:
            raise PlanError(f"seeds={self.seeds!r}: give seeds from 0 to {LARGEST_SEED}, such as (0, 1, 2)")
        if len({*self.seeds}) < len(self.seeds):
            twice = "a seed comes twice, and its points cannot be told apart"
            raise PlanError(f"seeds={self.seeds!r}: {twice}: give each once")
        self._hold(self.chosen())
        self.validate()
        allowed = self.merged("ALLOWED")
        for knobs in self.knobs() if allowed else ():
            for name, values in allowed.items():
                self.require(name, knobs.get(name, values[0]), values)

    def _settle(self, here: node.Node) -> None:
        """Choose the device and the number of workers that this machine allows."""
        device = "cuda" if self.on_gpus() else "cpu"
        if self.size == "full" and device == "cpu":
            needed = "a GPU" if self.least == 1 else f"at least {self.least} GPUs"
            shown = (
                f"{len(here.gpus)} GPU(s) are visible here{node.why_no_more_gpus()}"
                if here.has_gpus
                else node.why_no_gpu_is_visible()
            )
            if (usable := allowed_gpus()) < len(here.gpus):  # LABKIT_MAX_GPUS, or what Slurm was asked for
                shown += f", of which a launch may use {usable}"
            advice = "take size='small', or replay() a recorded run"
            raise NotEnoughGpus(f"size='full' needs {needed}, and {shown}: {advice}")
        self._hold({"device": device, "gpus": self.gpus or (allowed_gpus() if self.on_gpus() else 2)})
        if device == "cuda" and self.gpus > (shown := gpus_of_a_node()):
            visible = f"this node shows {shown} GPU(s){node.why_no_more_gpus()}"
            raise NotEnoughGpus(f"gpus={self.gpus}: {visible}, so 1 to {shown}")
        if device == "cpu" and self.gpus > MOST_CPU_PROCESSES:
            few = f"{len(here.gpus)} GPU(s), and this plan needs {self.least}" if here.has_gpus else "no GPU"
            instead = f"up to {MOST_CPU_PROCESSES} processes stand in for GPUs"
            raise NotEnoughGpus(f"gpus={self.gpus}: this node has {few}; {instead}")

    @property
    def workers_text(self) -> str:
        """The workers in words: "4 GPUs", "1 GPU", or "2 CPU processes"."""
        kind = "GPU" if self.device == "cuda" else "CPU process"
        return f"{self.gpus} {kind}{'' if self.gpus == 1 else 's' if kind == 'GPU' else 'es'}"

    @classmethod
    def on_gpus(cls) -> bool:
        """Return whether this node has the GPUs that the plan needs; where not, CPU processes stand in for them."""
        return allowed_gpus() >= cls.least

    @classmethod
    def few(cls, count: int) -> int:
        """Return the workers of a small run: `count`; fewer where the node has GPUs for the plan, but not as many."""
        return min(count, allowed_gpus()) if cls.on_gpus() else count

    def _hold(self, knobs: dict[str, Any]) -> None:
        """Set knobs while the plan is made; once it is, it does not change."""
        for name, value in knobs.items():
            object.__setattr__(self, name, value)

    def chosen(self) -> dict[str, Any]:
        """Return values for knobs that were left open, such as all numbers of ranks that the workers allow."""
        return {}

    def validate(self) -> None:
        """Raise PlanError where knobs of the subclass contradict each other."""

    def knobs(self) -> Iterator[dict[str, Any]]:
        """Yield the knob settings to measure, in order."""
        yield {}

    def needed_bytes(self, point: SimpleNamespace) -> float:
        """Return what the point holds at most on a rank's device, by the lesson's ledger; 0 where nobody knows.

        A worker does not try a point that needs more than is free: its row says "does not fit".
        """
        return 0

    def needed_capability(self, point: SimpleNamespace) -> tuple[int, int]:
        """Return the least compute capability of a GPU that can run the point; a row of an older one says so."""
        return 0, 0

    def must_fit(self, point: SimpleNamespace) -> bool:
        """Whether a size is too large where this point does not fit; False in sweeps until nothing fits."""
        return True

    def most_needed_bytes(self) -> float:
        """Return what the neediest point needs of those that must fit."""
        return max((self.needed_bytes(point) for point in self.points() if self.must_fit(point)), default=0)

    def with_gpus(self, gpus: int) -> Self:
        """Return the plan with so many workers, on the same kind of device; knobs chosen by their number follow it."""
        return type(self)(**vars(self)["_given"] | {"gpus": gpus, "device": self.device})

    @staticmethod
    def require(name: str, value: Any, allowed: tuple) -> None:
        """Raise PlanError, listing what is known, unless `value` is one of `allowed`."""
        if value not in allowed:
            raise PlanError(f"{name}={value!r} is not known; it is one of {', '.join(map(str, allowed))}")

    @classmethod
    def small(cls, **knobs) -> Self:
        """Return the plan that two CPU cores measure in seconds, along the same code path."""
        few: dict[str, Any] = {} if cls.FEW is None else {"gpus": cls.few(cls.FEW)}
        return cls(**{**few, **cls.merged("SMALL"), "size": "small", **knobs})

    @classmethod
    def full(cls, **knobs) -> Self:
        """Return the plan of the published reports' size, for GPUs."""
        return cls(**{**cls.merged("FULL"), "size": "full", **knobs})

    @classmethod
    def merged(cls, name: str) -> dict[str, Any]:
        """Return "SMALL", "FULL" or "ALLOWED" with what every base has of it, a subclass's before its base's."""
        return dict(chain.from_iterable(vars(base).get(name, {}).items() for base in reversed(cls.__mro__)))

    @classmethod
    def sized(cls, size: str = "auto", *, gpus: int = 0, seeds: int | tuple[int, ...] = 0, **knobs) -> Self:
        """Return `small()` or `full()`; auto takes, where it runs on GPUs, full or the largest of MIDDLE that fits
        their free memory, and recorded the plan of a recorded run, whose gpus and seeds it keeps.

        Where auto takes another size than full, the plan's `left_out` says why.

        `gpus` counts workers, and `seeds` counts seeds (or lists them); 0 leaves either to the plan. Raises PlanError
        where a value is none of these, where the plan needs more workers, for size="full" without GPUs, and for
        size="recorded" where the lesson has no recorded run of this plan with these `knobs`.
        """
        if size == "recorded":
            return cls._recorded(knobs)
        require_parameters(size, gpus, seeds)
        fitting = size == "auto" and cls.on_gpus()
        if 0 < gpus < cls.least:
            advice = f"take gpus={cls.least} or more, or gpus=0 for all GPUs (CPU processes where there are too few)"
            raise PlanError(f"gpus={gpus}: {cls.lab}.{cls.__name__} needs at least {cls.least} workers; {advice}")
        if gpus:
            knobs["gpus"] = min(gpus, cls.most or gpus)
        if seeds:
            knobs["seeds"] = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
        if fitting:
            return cls._largest_that_fits(knobs)
        return cls.full(**knobs) if size == "full" else cls.small(**knobs)

    @classmethod
    def _largest_that_fits(cls, knobs: dict[str, Any]) -> Self:
        """Return the plan of full size or, where its points do not fit the free memory, of the largest of MIDDLE."""
        plan = cls.full(**knobs)
        middle = cls.merged("MIDDLE")
        if not middle or (free := node.free_bytes(node.here().gpus[: plan.gpus])) is None:
            return plan
        room, needed = (1 - MEMORY_MARGIN) * (free - CONTEXT_BYTES), plan.most_needed_bytes()
        for name, changes in middle.items():
            if plan.most_needed_bytes() <= room:
                break
            plan = cls.full(**{**changes, "size": "middle", **knobs})
            why = f"full size needs {needed / 1e9:.1f} GB, and a GPU has {free / 1e9:.1f} GB free"
            plan._hold({"left_out": f"{why}: {name} instead"})
        return plan

    @classmethod
    def _recorded(cls, knobs: dict[str, Any]) -> Self:
        """Return the plan of the lesson's first recorded run of this class and `knobs`, without files of answers."""
        wanted = {name: _as_tuple(value) for name, value in knobs.items() if not str(value or ".py").endswith(".py")}
        for path in importlib.import_module(cls.__module__.rpartition(".")[0]).RECORDED.values():
            plan = Plan.from_json((RECORDED / path / "plan.json").read_text(encoding="utf-8"))
            if type(plan) is cls and all(getattr(plan, name) == value for name, value in wanted.items()):
                plan._hold({"recording": path})
                return plan
        shown = ", ".join(f"{name}={value!r}" for name, value in wanted.items()) or "its own knobs"
        raise PlanError(f"size='recorded': no run of {cls.lab}.{cls.__name__} with {shown} is recorded")

    def points(self) -> list[SimpleNamespace]:
        """Return every knob setting with every seed; seeds vary slowest, so that drift does not favour a setting.

        Raises PlanError where `knobs` cannot read or write a file: the launch's own files are not meant.
        """
        try:
            settings = [(seed, knobs) for seed in self.seeds for knobs in self.knobs()]
        except OSError as error:
            raised = f"{type(self).__qualname__}.knobs() raised {type(error).__name__}: {error}"
            raise PlanError(f"{raised}. Without it, the plan has no points: correct the path, or knobs()") from error
        return [SimpleNamespace(point=i, seed=seed, **knobs) for i, (seed, knobs) in enumerate(settings)]

    @property
    def name(self) -> str:
        """The plan's own name, as in the run folder: lower case."""
        return type(self).__name__.lower()

    def to_json(self) -> str:
        """Return the knobs as JSON; a plan class from elsewhere also lists its points: workers may not have it.

        Raises PlanError, naming the knob, for what JSON cannot hold.
        """
        for field in dataclasses.fields(self):
            self._require_json(field.name)
        module = type(self).__module__
        record = {"plan": f"{module}:{type(self).__qualname__}", "worker": self.worker, **dataclasses.asdict(self)}
        if not PLAN_MODULES.fullmatch(module):
            points = [vars(point) for point in self.points()]
            with suppress(TypeError, ValueError):  # knobs that JSON cannot hold: only a process with the class reads it
                return json.dumps({**record, "lab": self.lab, "points": points}, indent=1)
        return json.dumps(record, indent=1)

    def _require_json(self, name: str) -> None:
        value = getattr(self, name)
        try:
            json.dumps(value, default=dataclasses.asdict)
        except (TypeError, ValueError, RecursionError) as error:
            given = f"{name} is a {type(value).__name__}, which the run's plan.json cannot hold ({error})"
            raise PlanError(f"{given}: give numbers, strings, and tuples or dicts of them") from None

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read a plan back; of a file's module names, only those in PLAN_MODULES are imported.

        A class that is not known here, such as one in the user's own script, is read as a ListedPlan.
        Raises PlanError where the text is no plan, or names an unknown class and lists no points.
        """
        try:
            record = json.loads(text)
            knobs = {name: value for name, value in record.items() if name not in ("plan", "worker", "lab", "points")}
            module, _, kind = record["plan"].partition(":")
            if PLAN_MODULES.fullmatch(module):
                importlib.import_module(module)
            classes = [cls for cls in _subclasses(Plan) if (cls.__module__, cls.__qualname__) == (module, kind)]
            if classes:
                return classes[-1](**knobs)  # the newest: a notebook's cell may have been run again
            if "points" in record:
                common = {field.name: knobs[field.name] for field in dataclasses.fields(Plan)}
                return ListedPlan(**common, record=record)
        except PlanError:
            raise
        except (ValueError, KeyError, AttributeError, TypeError, ImportError) as error:
            raise PlanError(f"not a plan: {text[:80]!r} ({error})") from error
        raise PlanError(f"the plan {module}:{kind} is not known to this workbook")


@dataclass(frozen=True, kw_only=True)
class ListedPlan(Plan):
    """A plan whose class this process does not have: the knobs and points that its plan file lists, and no methods."""

    lab: ClassVar[str] = ""
    worker: ClassVar[str] = ""

    record: dict[str, Any] = dataclasses.field(hash=False)

    def chosen(self) -> dict[str, Any]:
        knobs = {name: _as_tuple(value) for name, value in self.record.items() if not hasattr(self, name)}
        return knobs | {name: str(self.record[name]) for name in ("lab", "worker")}

    def validate(self) -> None:
        self.points()

    def points(self) -> list[SimpleNamespace]:
        points = self.record["points"]
        return [SimpleNamespace(**{name: _as_tuple(value) for name, value in point.items()}) for point in points]

    @property
    def name(self) -> str:
        return self.record["plan"].rpartition(".")[2].rpartition(":")[2].lower()

    def to_json(self) -> str:
        return json.dumps(self.record, indent=1)


def require_parameters(size: Any, gpus: Any, seeds: Any) -> None:
    """Raise PlanError, saying what is allowed, where a parameter of a notebook has a value that none can have."""
    Plan.require("size", size, SIZES)
    if not _is_whole(gpus) or gpus < 0:
        raise PlanError(f"gpus={gpus!r}: give a number of worker processes, such as 2, or 0 for all GPUs")
    if size == "recorded" and (gpus or seeds):
        raise PlanError("size='recorded' shows runs as they were measured: leave gpus and seeds out")
    listed = isinstance(seeds, list | tuple) and len(seeds) > 0
    if not listed and not (_is_whole(seeds) and 0 <= seeds <= MOST_SEEDS):
        raise PlanError(f"seeds={seeds!r}: give a number of repetitions, 1 to {MOST_SEEDS}, or 0 for each plan's own")


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _as_tuple(value: Any) -> Any:
    """Return JSON's list, also of lists, as the tuple that a plan holds."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _subclasses(cls: type) -> Iterator[type]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
