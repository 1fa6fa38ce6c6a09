"""A run in a few lines, as a notebook shows it: what was measured, where, and what the launch cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.engine.plan import Plan
from labkit.repository import REPOSITORY


def summary(
    plan: Plan, status: dict[str, Any], measured: dict[str, Any], source: str, folder: Path
) -> list[tuple[str, str]]:
    """Return (what, value) pairs of a run from its plan, status, tally, source and folder."""
    counted = f"{measured['points']} of {len(plan.points())} measured, {measured['rows']} rows"
    lines = [
        ("run", f"{plan.lab} · {plan.name}, {status.get('state', 'going on')}"),
        ("source", source),
        ("workers", f"{plan.gpus} × {plan.device}"),
        ("points", measured.get("problem") or counted),
        *_cost(status),
    ]
    if measured["not_ok"]:
        lines.append(("not ok", ", ".join(f"{count} × {status}" for status, count in measured["not_ok"].items())))
    short = folder.relative_to(REPOSITORY) if folder.is_relative_to(REPOSITORY) else folder
    return [*lines, ("folder", str(short))]


def _cost(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Return time, launches, processes and GPU memory, as far as the run's status knows them."""
    try:
        return _told(status)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [("status", f"status.json is damaged: {type(error).__name__}: {error}")] if len(status) > 1 else []


def _told(status: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if status:
        start, measuring = status["startup_seconds"], status["measuring_seconds"]
        lines.append(("time", f"{status['seconds']:.1f} s: {start:.1f} s start-up, {measuring:.1f} s measuring"))
    if status.get("launches", 1) > 1 and "processes_started" in status:
        lines.append(("launches", f"{status['launches']}: a point ended its workers; fresh ones took up the rest"))
    if "processes_started" in status:
        lines.append(("processes", f"{status['processes_started']} started, {status['processes_left']} left"))
    if before := status.get("gpu_mib_before"):
        after = status["gpu_mib_after"]
        lines.append(
            ("GPU memory", ", ".join(f"GPU {gpu}: {mib} → {after.get(gpu)} MiB" for gpu, mib in before.items()))
        )
    return [*lines, *(("held", holder) for holder in status.get("held_by_others", []))]
