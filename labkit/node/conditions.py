"""Conditions of a run: the state of the machine before, during and after the measurements, and how files hold it.

A run's folder holds two files, which labkit.engine.run_folder names.

`conditions.json` is one object:

    version        1
    began_monotonic_s  the clock of a worker's events at the first look
    seconds        time from the first look to the last one, by the monotonic clock
    before, after  {"host": {…}, "gpus": [{…}, …], "ranks": [{…}, …]}: fields of HostState, GpuState and RankState
    points         [{"point", "began_s", "ended_s"}, …]: when rank 0 measured each point, in seconds as above
    sampling       {"samples", "cpu_seconds"}: looks during the run, and their processor time
    notes          sentences about what could not be read

`samples.jsonl` is the time series: one object per look and device, with `at_s` (seconds since the first look), `gpu`
(index; null for the host), and as far as they are known:

    a GPU     utilisation_percent, memory_mib, power_w, sm_clock_mhz, temperature_c, throttle_reasons (names)
    the host  cpu_percent (of all cores), cpu_pressure_percent, memory_available_gib

A counter that the machine does not have is absent from the files and None or NaN when read, never zero.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from labkit.stored import restored

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1
NEVER_MEASURED = "This run has no conditions.json: it is an older run, or LABKIT_CONDITIONS=0 or debug=True launched it"
_NOT_STORED = ("samples", "machine", "run", "source", "missing")  # of Conditions: other files of the run hold them
SAMPLE_COLUMNS = (
    "at_s",
    "gpu",
    "utilisation_percent",
    "memory_mib",
    "power_w",
    "sm_clock_mhz",
    "temperature_c",
    "throttle_reasons",
    "cpu_percent",
    "cpu_pressure_percent",
    "memory_available_gib",
)


@dataclass(frozen=True)
class HostState:
    """The host at one moment; None where the system does not tell.

    cores: those that the process may use. cpu_pressure_percent: share of the last 10 s in which a process waited for a
    core (PSI). cgroup_quota_cores: cores that the control group may use.
    """

    cores: int | None = None
    cpu_pressure_percent: float | None = None
    cgroup_quota_cores: float | None = None
    memory_available_gib: float | None = None


@dataclass(frozen=True)
class GpuState:
    """One GPU at one moment; None where the driver does not tell.

    throttle_reasons: names, as in REASONS of counters.py; ()
    where the clock is free. ecc_uncorrected: errors since the driver was loaded. nvlink_errors: recoveries of all links
    (packets that a link repeats by itself are normal, and not counted). other_processes: those on the GPU that belong
    to no run of this kernel. *_throttled_s: time for which power or heat lowered the clock since the driver was loaded.
    """

    gpu: int
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    utilisation_percent: float | None = None
    memory_mib: float | None = None
    ecc_uncorrected: int | None = None
    nvlink_errors: int | None = None
    other_processes: int | None = None
    power_throttled_s: float | None = None
    heat_throttled_s: float | None = None


@dataclass(frozen=True)
class RankState:
    """What one worker measured of its host and GPU while all workers measured the same.

    python_call_ns: one call of an empty Python function. enqueue_us: one addition put into the GPU's queue.
    pinned_copy_gb_per_s: from pinned host memory to the GPU, while all ranks copy. The last two are None on a CPU.
    """

    rank: int
    python_call_ns: float | None = None
    enqueue_us: float | None = None
    pinned_copy_gb_per_s: float | None = None


@dataclass(frozen=True)
class Snapshot:
    """Host, GPUs and ranks at one moment: before the first point, or after the last."""

    host: HostState = field(default_factory=HostState)
    gpus: tuple[GpuState, ...] = ()
    ranks: tuple[RankState, ...] = ()


@dataclass(frozen=True)
class Conditions:
    """The conditions of one run; `run.conditions()` gives it.

    missing: a sentence that says why nothing was measured, "" where something was. samples: the lines of samples.jsonl.
    machine: "driver", "torch", "processor" (model of the GPUs, or of the CPU) and "cores", which the run's node.json
    tells, also where `missing`. run, source: what was launched, and where, for a chart. The other fields are described
    in the module's docstring.
    """

    before: Snapshot = field(default_factory=Snapshot)
    after: Snapshot = field(default_factory=Snapshot)
    began_monotonic_s: float | None = None
    seconds: float | None = None
    points: tuple[dict[str, Any], ...] = ()
    sampling: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    samples: tuple[dict[str, Any], ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)
    run: str = ""
    source: str = ""
    missing: str = ""

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return not self.missing

    def to_json(self) -> str:
        """Return the text of conditions.json: all but the samples, and nothing that is not known."""
        content = asdict(self) | {"version": VERSION}
        for name in _NOT_STORED:
            del content[name]
        return json.dumps(_without_none(content), indent=1, ensure_ascii=False)

    def table(self) -> pd.DataFrame:
        """Return the time series, columns SAMPLE_COLUMNS; NaN where something is not known."""
        import pandas as pd  # here, so that `import labkit` stays fast

        return pd.DataFrame(list(self.samples), columns=list(SAMPLE_COLUMNS))


def parse(text: str, samples: Iterable[dict[str, Any]] = ()) -> Conditions:
    """Return the conditions that `to_json` wrote; unknown keys are ignored, what is damaged reads as `missing`."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        if (version := content.get("version")) != VERSION:
            raise ValueError(f"its version is {str(version)[:20]!r}, and this code reads version {VERSION}")
        known = {name: value for name, value in content.items() if name not in _NOT_STORED}
        return replace(restored(Conditions, known), samples=tuple(samples))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Conditions(missing=f"This run's conditions.json cannot be read: {error}")


def _without_none(value: Any) -> Any:
    """Return the value without the fields that are None."""
    if isinstance(value, dict):
        return {name: _without_none(inner) for name, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value
