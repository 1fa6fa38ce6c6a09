"""Sentences on the conditions of one run: host, clocks, neighbours, and what was not measured."""

from __future__ import annotations

from typing import Any

from IPython.display import Markdown

from labkit.node.comparability import THROTTLED_PERCENT, key_conditions
from labkit.node.conditions import Conditions
from labkit.story import units
from labkit.story.words import bullets, listed

APART = 1.25  # between a run's ranks: most launches on H200 nodes show less than 1.1, some 1.4
BUSY_PERCENT = 10.0  # of the time, in which some process waited for a core: more disturbs timings of milliseconds


def explain_conditions(conditions: Conditions) -> Markdown:
    """Say how fast the host was, whether clocks were throttled, and who else was there; what is not known is left out.

    Call it with `run.conditions()`.
    """
    if not conditions.measured:
        return bullets(f"{conditions.missing}.")
    readings: dict[str, Any] = dict(key_conditions(conditions))
    notes = [f"{note[:1].upper()}{note[1:]}." for note in conditions.notes]
    return bullets(
        _host(conditions, readings),
        _copies(readings),
        _clocks(readings),
        _others(readings),
        _cores(readings),
        _errors(readings),
        *notes,
    )


def _host(conditions: Conditions, readings: dict[str, Any]) -> str | None:
    name = "enqueue_us" if "enqueue_us" in readings else "python_call_ns"
    of_ranks = [value for rank in conditions.before.ranks if (value := getattr(rank, name)) is not None]
    if name not in readings or not of_ranks:
        return None
    what, unit = ("Enqueueing a kernel", "µs") if name == "enqueue_us" else ("A Python call", "ns")
    least, most = (f"{units.number(value)} {unit}" for value in (min(of_ranks), max(of_ranks)))
    if max(of_ranks) <= APART * min(of_ranks):
        return f"{what} takes **{most}** at most; the ranks are alike."
    return f"{what} takes {least} on the fastest rank and **{most}** on the slowest: the ranks differ."


def _copies(readings: dict[str, Any]) -> str | None:
    rate = readings.get("pinned_copy_gb_per_s")
    return rate and f"All ranks together copy {units.rate(rate)} from pinned host memory to the GPUs."


def _clocks(readings: dict[str, Any]) -> str | None:
    if "throttled_percent" not in readings:
        return None
    share, clock = readings["throttled_percent"], readings.get("sm_clock_mhz")
    at = f" The median clock of busy GPUs is {units.count(clock)} MHz." if clock else ""
    if share <= THROTTLED_PERCENT:
        return f"**Clocks are free**: a GPU was throttled for {share:.0f} % of the measuring at most.{at}"
    reasons = readings.get("throttle_reasons") or "no reason is given"
    return f"**A GPU was throttled** for {share:.0f} % of the measuring ({reasons}).{at}"


def _others(readings: dict[str, Any]) -> str | None:
    if "other_processes" not in readings:
        return None
    if not readings["other_processes"]:
        return "No other process used the GPUs before or after the run."
    return "**Another process used the GPUs** before or after the run: rates may be too low."


def _cores(readings: dict[str, Any]) -> str:
    waited, quota = readings.get("cpu_pressure_percent"), readings.get("cgroup_quota_cores")
    cores = f"The run could use {readings['cores']} core{'s' * (readings['cores'] != 1)}"
    cores += f", of which its control group allows {units.number(quota)}" if quota else ""
    if waited is None:
        return f"{cores}."
    verdict = "**the host is shared or overloaded**" if waited > BUSY_PERCENT else "the host has time"
    return f"{cores}; some process waited for a core in {waited:.0f} % of the time: {verdict}."


def _errors(readings: dict[str, Any]) -> str | None:
    counted = {"ecc_uncorrected_errors": "uncorrected memory errors", "nvlink_errors": "NVLink recoveries"}
    errors = [f"{readings[name]} {words}" for name, words in counted.items() if readings.get(name)]
    return f"**The run met {listed(errors)}.**" if errors else None
