"""What a launch took and gave back: processes, GPU memory, and who else was there."""

from __future__ import annotations

from typing import Any

from labkit import node
from labkit.engine import watch
from labkit.engine.run import REPOSITORY, Run, read_lines


class Receipt:
    """Made before the workers start; `fields` afterwards gives what goes into the run's status."""

    def __init__(self, run: Run):
        self.run = run
        self.gpus = run.node.gpus[: run.plan.gpus] if run.plan.device == "cuda" else ()
        self.before_mib = node.used_mib(self.gpus)
        self.held = [str(holder) for holder in node.holders(self.gpus)]

    def fields(self) -> dict[str, Any]:
        """Give processes started and left, GPU memory in use before and after (MiB, by index), and other holders."""
        ranks = range(self.run.plan.gpus)
        events = [event for rank in ranks for event in read_lines(self.run.events_file(rank))]
        return {
            "processes_started": sum(event["event"] == "started" for event in events),
            "processes_left": len(watch.members(self.run)),
            "gpu_mib_before": {str(gpu): mib for gpu, mib in self.before_mib.items()},
            "gpu_mib_after": {str(gpu): mib for gpu, mib in node.used_mib(self.gpus).items()},
            "held_by_others": self.held,
        }


def lines(run: Run) -> list[tuple[str, str]]:
    """Give the receipt of a run, as its repr shows it: (what, value) pairs."""
    status, plan, rows = run.status, run.plan, run.rows
    measured = rows["point"].nunique() if len(rows) else 0
    told = [
        ("run", f"{plan.lab} · {plan.name}, {status.get('state', 'going on')}"),
        ("source", run.source),
        ("workers", f"{plan.gpus} × {plan.device}"),
        ("points", f"{measured} of {len(plan.points())} measured, {len(rows)} rows"),
        *_cost(status),
    ]
    if len(rows) and (bad := rows.loc[rows["status"] != "ok", "status"]).size:
        told.append(("not ok", ", ".join(f"{n} × {status}" for status, n in bad.value_counts().items())))
    short = run.folder.relative_to(REPOSITORY) if run.folder.is_relative_to(REPOSITORY) else run.folder
    return [*told, ("folder", str(short))]


def _cost(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Time, launches, processes and GPU memory, as far as the run's status knows them."""
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
