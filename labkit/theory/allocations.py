"""The allocator's history: which kind of memory was in use when, and how the reserved memory is cut."""

from __future__ import annotations

import linecache
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from labkit.repository import CODE, NOTEBOOKS
from labkit.theory.sizes import MIB

_KEPT = {"forward": "activations", "backward": "gradients", "optimizer": "optimizer"}
KINDS = ("base", *_KEPT.values(), "temporary")
BINS = 300  # of a timeline
LISTED, LARGEST = 200, 12  # rows of segments, and of the largest allocations
_RESERVE = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}

_Change = tuple[float, str, float]  # when (µs), of which kind or "reserved", by how many MiB


def _changes(events: Iterable[dict], phases: Sequence[tuple[str, float, float]]) -> list[_Change]:
    """Return each allocation and release as a change of its kind, in the order of the events.

    An allocation that outlives the phase in which it was made is named after that phase: made in forward, it is an
    activation (or a parameter gathered to be used again in backward); in backward, a gradient; in optimizer, a state.
    All others are temporary. A release of what was there before lowers the base. Memory counts as released when its
    release is requested, though other streams may still hold up its reuse. Events before the first phase are left out.
    """
    starts = [start for _, start, _ in phases]
    changes: list[_Change] = []
    living: dict[int, tuple[int, int]] = {}  # address → the change that it was born with, its phase
    for event in events:
        when, action, mib = event["time_us"], event["action"], event["size"] / MIB
        phase = bisect_right(starts, when) - 1
        if phase < 0:
            continue
        if action == "alloc":
            living[event["addr"]] = (len(changes), phase)
            changes.append((when, _KEPT.get(phases[phase][0], "temporary"), mib))
        elif action == "free_requested":
            kind = "base"
            if event["addr"] in living:
                birth, made = living.pop(event["addr"])
                if made == phase:
                    changes[birth] = (changes[birth][0], "temporary", changes[birth][2])
                kind, mib = changes[birth][1:]
            changes.append((when, kind, -mib))
        elif action in _RESERVE:
            changes.append((when, "reserved", _RESERVE[action] * mib))
    return changes


def timeline(
    events: Iterable[dict],
    phases: Sequence[tuple[str, float, float]],
    base_mib: float,
    reserved_mib: float = 0.0,
) -> list[dict[str, Any]]:
    """Return BINS moments, in order, each the one of its bin at which most memory was in use.

    `phases` are (name, start_us, end_us) in order; base and reserved are what was in use and reserved before the first.
    Rows: t_ms since the first phase's start, base_mib and what KINDS says, allocated_mib (their sum), reserved_mib,
    phase. A bin without a change shows what it began with.
    """
    first, last = phases[0][1], phases[-1][2]
    names, starts = [name for name, _, _ in phases], [start for _, start, _ in phases]
    now = dict.fromkeys([*KINDS, "reserved"], 0.0) | {"base": base_mib, "reserved": reserved_mib}

    def moment(when: float) -> dict[str, Any]:
        levels = {f"{kind}_mib": now[kind] for kind in KINDS}
        levels |= {"allocated_mib": sum(levels.values()), "reserved_mib": now["reserved"]}
        return {"t_ms": (when - first) / 1e3, **levels, "phase": names[bisect_right(starts, when) - 1]}

    rows, waiting = [], _changes(events, phases)[::-1]
    for place in range(BINS):
        start, end = (first + (last - first) * edge / BINS for edge in (place, place + 1))
        best = moment(start)
        while waiting and (waiting[-1][0] < end or place == BINS - 1):
            when, kind, mib = waiting.pop()
            now[kind] += mib
            if sum(now[kind] for kind in KINDS) > best["allocated_mib"]:
                best = moment(when)
        rows.append(best)
    return rows


def fragments(segments: Iterable[dict]) -> list[dict[str, float]]:
    """Return the allocator's segments, largest first: segment_mib, allocated_mib, largest_free_mib, segments (1).

    Where there are more than LISTED, a last row sums the smallest (largest_free_mib: the largest of theirs) and says in
    `segments` how many they are.
    """
    rows = sorted(map(_fragment, segments), key=lambda row: (-row["segment_mib"], -row["allocated_mib"]))
    rest = rows[LISTED:]
    if not rest:
        return rows
    summed = {name: sum(row[name] for row in rest) for name in rest[0]}
    return [*rows[:LISTED], summed | {"largest_free_mib": max(row["largest_free_mib"] for row in rest)}]


def _fragment(segment: dict) -> dict[str, float]:
    free = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
    return {
        "segment_mib": segment["total_size"] / MIB,
        "allocated_mib": segment["allocated_size"] / MIB,
        "largest_free_mib": max(free, default=0) / MIB,
        "segments": 1,
    }


def largest(events: Iterable[dict], phases: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Return the largest kinds of allocation, at most LARGEST: size_mib, count, phase, line and source (its text).

    Allocations of one size, in one phase, by one line of the workbook are one row. The line is the innermost one of
    the workbook's own code among an event's `frames`; in backward, that is the call of backward.
    """
    starts = [start for _, start, _ in phases]
    counts: Counter[tuple[int, str, str, str]] = Counter()
    for event in events:
        phase = bisect_right(starts, event["time_us"]) - 1
        if event["action"] == "alloc" and phase >= 0:
            counts[event["size"], phases[phase][0], *_own_line(event.get("frames", ()))] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[0][0], -item[1], item[0][1:]))[:LARGEST]
    return [
        {"size_mib": size / MIB, "count": count, "phase": phase, "line": line, "source": source}
        for (size, phase, line, source), count in ordered
    ]


def _own_line(frames: Iterable[dict]) -> tuple[str, str]:
    """Return the innermost line of the workbook's own code, as "worker/transformer.py:34", and its text."""
    folders = tuple(f"{folder}/" for folder in CODE)
    for frame in frames:
        if frame["filename"].startswith(folders) and not frame["filename"].endswith("worker/allocations.py"):
            name = frame["filename"].removeprefix(folders[0]).removeprefix(f"{NOTEBOOKS}/")
            return f"{name}:{frame['line']}", linecache.getline(frame["filename"], frame["line"]).strip()
    return "", ""
