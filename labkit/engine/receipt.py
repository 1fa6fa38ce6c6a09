"""What a launch took and gave back: processes, GPU memory, and who else was there."""

from __future__ import annotations

from typing import Any

from labkit import node
from labkit.engine import watch
from labkit.engine.errors import DamagedRun
from labkit.engine.lines import content
from labkit.engine.run import Run
from labkit.repository import REPOSITORY


class Receipt:
    """Made before the workers start; `fields` afterwards gives what goes into the run's status."""

    def __init__(self, run: Run):
        self.run = run
        self.gpus = run.node.gpus[: run.plan.gpus] if run.plan.device == "cuda" else ()
        self.before_mib = node.used_mib(self.gpus)
        self.held = [str(holder) for holder in node.holders(self.gpus)]

    def fields(self) -> dict[str, Any]:
        """Give processes started and left, GPU memory in use before and after (MiB, by index), and other holders."""
        return {
            "measured": self.run.tally(),
            "processes_started": sum(map(self._started, range(self.run.plan.gpus))),
            "processes_left": len(watch.members(self.run)),
            "gpu_mib_before": {str(gpu): mib for gpu, mib in self.before_mib.items()},
            "gpu_mib_after": {str(gpu): mib for gpu, mib in node.used_mib(self.gpus).items()},
            "held_by_others": self.held,
        }

    def _started(self, rank: int) -> int:
        try:
            return content(self.run.events_file(rank)).count(b'"event": "started"')
        except (OSError, DamagedRun):
            return 0


def lines(run: Run) -> list[tuple[str, str]]:
    """Give the receipt of a run, as its repr shows it: (what, value) pairs."""
    status, plan, measured = run.status, run.plan, run.tally()
    counted = f"{measured['points']} of {len(plan.points())} measured, {measured['rows']} rows"
    told = [
        ("run", f"{plan.lab} · {plan.name}, {status.get('state', 'going on')}"),
        ("source", run.source),
        ("workers", f"{plan.gpus} × {plan.device}"),
        ("points", measured.get("problem") or counted),
        *_cost(status),
    ]
    if measured["not_ok"]:
        told.append(("not ok", ", ".join(f"{count} × {status}" for status, count in measured["not_ok"].items())))
    short = run.folder.relative_to(REPOSITORY) if run.folder.is_relative_to(REPOSITORY) else run.folder
    return [*told, ("folder", str(short))]


def _cost(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Time, launches, processes and GPU memory, as far as the run's status knows them."""
    try:
        return _told(status)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [("status", f"status.json is damaged: {type(error).__name__}: {error}")] if len(status) > 1 else []


def _told(status: dict[str, Any]) -> list[tuple[str, str]]:
    told = []
    if status:
        start, measuring = status["startup_seconds"], status["measuring_seconds"]
        told.append(("time", f"{status['seconds']:.1f} s: {start:.1f} s start-up, {measuring:.1f} s measuring"))
    if status.get("launches", 1) > 1 and "processes_started" in status:
        told.append(("launches", f"{status['launches']}: a point ended its workers; fresh ones took up the rest"))
    if "processes_started" in status:
        told.append(("processes", f"{status['processes_started']} started, {status['processes_left']} left"))
    if before := status.get("gpu_mib_before"):
        after = status["gpu_mib_after"]
        told.append(
            ("GPU memory", ", ".join(f"GPU {gpu}: {mib} → {after.get(gpu)} MiB" for gpu, mib in before.items()))
        )
    return [*told, *(("held", holder) for holder in status.get("held_by_others", []))]
