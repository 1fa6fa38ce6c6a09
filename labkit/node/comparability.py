"""Whether two runs can be compared: key figures of a run's conditions, and the differences that change measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from labkit.node.conditions import Conditions, GpuState, Snapshot
from labkit.node.limits import RESOLUTION

HOST_RATIO = 1.5  # hosts of one GPU model: 7.3 to 10.5 µs per enqueued addition, which is 1.44 ×, is their usual spread
THROTTLED_PERCENT = 10.0  # of the looks at busy GPUs: less is the start of a burst, before the clock has settled
CORES_PER_RANK = 2.0  # one for the rank's own thread, one for those of backward and NCCL; more change little
MEASURED_HOST = frozenset({"python_call_ns", "enqueue_us"})  # a run that has one of them was measured
THROTTLE_COUNTERS = {"power_throttled_s": "power cap", "heat_throttled_s": "temperature"}
LEAST_LOOKS = 10  # at busy GPUs: fewer tell no share
BUSY_PERCENT = 50.0  # utilisation from which a GPU's clock is the clock of its work
# Of the share of time in which a process waited for a core (PSI): quiet runs on 2 × H200 with 32 cores showed 0.0 to
# 0.3 %, the same run under taskset on a single core 55 %.
PRESSURE_POINTS = 25.0


@dataclass(frozen=True)
class Condition:
    """One of the key figures below: its words, how its value is written, and how a card's line writes it.

    ratio, points: two runs differ where one has more than so many times, or so much more than, the other's. worst: of
    several runs together the largest counts, else the median.
    """

    words: str
    form: str
    in_line: str
    ratio: float = math.inf
    points: float = math.inf
    worst: bool = False

    def differs(self, a: float, b: float) -> bool:
        """Whether two runs' values are farther apart than runs of one machine are."""
        return max(a, b) > self.ratio * min(a, b) or abs(a - b) > self.points


CONDITIONS = {  # in the order of a card's line
    "cores": Condition("usable cores", "{:g}", "usable cores: {:g}"),
    "enqueue_us": Condition("time to enqueue a kernel", "{:.3g} µs", "{:.3g} µs to enqueue a kernel", HOST_RATIO),
    "python_call_ns": Condition("time of a Python call", "{:.3g} ns", "{:.3g} ns per Python call", HOST_RATIO),
    "cpu_pressure_percent": Condition(
        "share of the time in which a process waited for a core",
        "{:.0f} %",
        "a process waited for a core in {:.0f} % of the time",
        points=PRESSURE_POINTS,
    ),
    "sm_clock_mhz": Condition("GPU clock while busy", "{:.0f} MHz", "", 1 + RESOLUTION),
    "throttled_percent": Condition(
        "largest share of a run with throttled clocks",
        "{:.0f} %",
        "clocks lowered for at most {:.0f} % of a run",
        points=THROTTLED_PERCENT,
        worst=True,
    ),
    "other_processes": Condition(
        "other processes on the GPUs", "{:g}", "{:g} other processes on the GPUs", points=0, worst=True
    ),
    "temperature_c": Condition("highest temperature", "{:.0f} °C", "at most {:.0f} °C", worst=True),
    "ecc_uncorrected_errors": Condition("uncorrected memory errors", "{:g}", "", worst=True),
    "nvlink_errors": Condition("NVLink recoveries", "{:g}", "", worst=True),
}


@dataclass(frozen=True)
class Difference:
    """A condition that differs between two runs: what, and its value in each, as text.

    host_only: whether it changes only measures that depend on the host (launch-bound steps, enqueue times, copies that
    the host starts), not what GPUs and links do by themselves.
    """

    what: str
    first: str
    second: str
    host_only: bool = False

    def sentence(self, first: str = "your run", second: str = "the recorded run") -> str:
        """Return the difference as half a sentence: "torch is 2.13.0 in your run and 2.11.0 in the recorded run"."""
        return f"{self.what} is {self.first} in {first} and {self.second} in {second}"

    @property
    def short(self) -> str:
        """Return the difference for a chart's footer: "differs: torch 2.13.0 | 2.11.0", in the order of the sources."""
        return f"differs: {self.what} {self.first} | {self.second}"


def key_conditions(conditions: Conditions) -> dict[str, float | str]:
    """Return the key figures of a run's conditions, name (with its unit) → value; what is not known is left out.

    enqueue_us, python_call_ns: of the slowest rank. pinned_copy_gb_per_s: all ranks together. Of before and after, the
    better value counts: one disturbed look must not condemn a run. sm_clock_mhz: median over looks at busy GPUs.
    throttled_percent: share of the points' time in which power or heat lowered the clock of the GPU that it lowered
    longest, as the driver counts it, else share of the looks at busy GPUs, of at least ten; throttle_reasons.
    temperature_c: the highest. other_processes: on all GPUs of the run, before or after. cpu_pressure_percent: median.
    *_errors: added during the run. driver, torch: versions.
    """
    values = {
        **conditions.machine,
        "enqueue_us": _best(conditions, "enqueue_us", max, min),
        "python_call_ns": _best(conditions, "python_call_ns", max, min),
        "pinned_copy_gb_per_s": _best(conditions, "pinned_copy_gb_per_s", sum, max),
        **_while_busy(conditions),
        **_counted_throttling(conditions),
        "power_limit_w": _gpu_reading(conditions, "power_limit_w", min),
        "other_processes": _gpu_reading(conditions, "other_processes", max),
        "ecc_uncorrected_errors": _counter_growth(conditions, "ecc_uncorrected"),
        "nvlink_errors": _counter_growth(conditions, "nvlink_errors"),
        "cores": conditions.before.host.cores or conditions.machine.get("cores"),
        "cgroup_quota_cores": conditions.before.host.cgroup_quota_cores,
        "cpu_pressure_percent": _median_of_known(sample.get("cpu_pressure_percent") for sample in conditions.samples),
    }
    return {name: value for name, value in values.items() if value is not None}


def differences_between(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the differences of two runs whose key figures are `a` and `b`."""
    if a.get("processor") != b.get("processor"):
        return ()
    differences = [Difference(name, str(a[name]), str(b[name])) for name in ("driver", "torch") if _differ(a, b, name)]
    if _differ(a, b, "cores") and min(_cores_per_rank(a), _cores_per_rank(b)) < CORES_PER_RANK:
        differences.append(
            Difference("the number of usable cores", f"{a['cores']:g}", f"{b['cores']:g}", host_only=True)
        )
    quotas = [conditions.get("cgroup_quota_cores") for conditions in (a, b)]
    if quotas[0] != quotas[1] and {*a} & {*b} & MEASURED_HOST:
        quota_texts = ["none" if quota is None else f"{quota:g} cores" for quota in quotas]
        differences.append(Difference("the CPU quota", quota_texts[0], quota_texts[1], host_only=True))
    both = {*a} & {*b}
    host = "enqueue_us" if "enqueue_us" in both else "python_call_ns"
    if host in both and a[host] and b[host] and CONDITIONS[host].differs(a[host], b[host]):
        texts = (CONDITIONS[host].form.format(conditions[host]) for conditions in (a, b))
        differences.append(Difference(f"the slowest rank's {CONDITIONS[host].words}", *texts, host_only=True))
    name = "throttled_percent"
    if name in both and CONDITIONS[name].differs(a[name], b[name]):
        differences.append(Difference("the share of time with throttled GPU clocks", _throttling(a), _throttling(b)))
    if _differ(a, b, "other_processes") and not (a["other_processes"] and b["other_processes"]):
        counts = [f"{conditions['other_processes']:g}" for conditions in (a, b)]
        differences.append(Difference("the number of other processes on a GPU", counts[0], counts[1]))
    return tuple(differences)


def _cores_per_rank(conditions: Mapping[str, Any]) -> float:
    return conditions["cores"] / conditions.get("ranks", 1)


def _throttling(conditions: Mapping[str, Any]) -> str:
    reasons = conditions.get("throttle_reasons")
    return f"{conditions['throttled_percent']:.0f} %{f' ({reasons})' if reasons else ''}"


def _differ(a: Mapping[str, Any], b: Mapping[str, Any], name: str) -> bool:
    return name in a and name in b and a[name] != b[name]


def _median_of_known(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if present else None


def _best(conditions: Conditions, name: str, of_ranks: Any, of_looks: Any) -> float | None:
    values_of = [[getattr(rank, name) for rank in snapshot.ranks] for snapshot in (conditions.before, conditions.after)]
    counted = [of_ranks(values) for values in values_of if values and None not in values]
    return of_looks(counted) if counted else None


def _gpu_reading(conditions: Conditions, name: str, statistic: Any) -> float | None:
    values = [getattr(gpu, name) for snapshot in (conditions.before, conditions.after) for gpu in snapshot.gpus]
    present = [value for value in values if value is not None]
    return statistic(present) if present else None


def _counter_growth(conditions: Conditions, name: str) -> int | None:
    """Return by how much a counter of all GPUs has grown; None where one of its ends is not known."""
    before, after = (_by_gpu(snapshot) for snapshot in (conditions.before, conditions.after))
    ends = [(getattr(before[gpu], name), getattr(after[gpu], name)) for gpu in before if gpu in after]
    spans = [(start, end) for start, end in ends if start is not None and end is not None]
    return sum(max(0, end - start) for start, end in spans) if spans else None


def _by_gpu(snapshot: Snapshot) -> dict[int, GpuState]:
    return {gpu.gpu: gpu for gpu in snapshot.gpus}


def _while_busy(conditions: Conditions) -> dict[str, Any]:
    busy = [sample for sample in conditions.samples if (sample.get("utilisation_percent") or 0) >= BUSY_PERCENT]
    reasons_seen = [sample["throttle_reasons"] for sample in busy if sample.get("throttle_reasons") is not None]
    reasons = sorted({reason for names in reasons_seen for reason in names})
    temperatures = [sample["temperature_c"] for sample in conditions.samples if "temperature_c" in sample]
    return {
        "sm_clock_mhz": _median_of_known(sample.get("sm_clock_mhz") for sample in busy),
        "throttled_percent": 100 * sum(map(bool, reasons_seen)) / len(reasons_seen)
        if len(reasons_seen) >= LEAST_LOOKS
        else None,
        "throttle_reasons": ", ".join(reasons) if reasons_seen else None,
        "temperature_c": max(temperatures, default=None),
    }


def _counted_throttling(conditions: Conditions) -> dict[str, Any]:
    """Return the share of the points' time in which a GPU's clock was lowered, by the driver's own counters."""
    measuring_s = sum(point["ended_s"] - point["began_s"] for point in conditions.points if "ended_s" in point)
    before, after = (_by_gpu(snapshot) for snapshot in (conditions.before, conditions.after))
    shares, reasons = [], set()
    for gpu in before.keys() & after.keys():
        for name, reason in THROTTLE_COUNTERS.items():
            ends = [getattr(snapshot[gpu], name) for snapshot in (before, after)]
            if None not in ends and measuring_s > 0:
                share = min(100.0, 100 * max(0.0, ends[1] - ends[0]) / measuring_s)
                shares.append(share)
                reasons |= {reason} if share >= 1 else set()
    return {"throttled_percent": max(shares), "throttle_reasons": ", ".join(sorted(reasons))} if shares else {}
