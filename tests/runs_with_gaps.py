"""Runs of which points are missing, as out of memory leaves them: what pages are fed to see that they stay whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from labkit import launching
from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.provenance import of_run

OUT_OF_MEMORY = "out of memory"
SMALL_EVERYWHERE = ("Trial",)  # a bug needs no large model to show
# Which of a run's points, by their place in the plan, are left.
KEPT: dict[str, Callable[[int, int], bool]] = {
    "no point": lambda place, count: False,
    "all but the first": lambda place, count: place > 0,
    "only the first": lambda place, count: place == 0,
    "the second half": lambda place, count: 2 * place >= count,
    "every other": lambda place, count: place % 2 == 1,
}


class RunWithGaps(Run):
    """A recorded run, of which the points that `kept` does not name ran out of memory; it is no recorded one."""

    kept: Callable[[int, int], bool]

    @property
    def gaps(self) -> str:
        points = self.plan.points()
        lost = sum(not self.kept(place, len(points)) for place in range(len(points)))
        return f"{lost} of {len(points)} points missing: {lost} × {OUT_OF_MEMORY}" if lost else ""

    @property
    def exports(self) -> Path:
        return replay(self.folder).exports

    def _table(self, *, spans: bool) -> pd.DataFrame:
        points = self.plan.points()
        left = [point.point for place, point in enumerate(points) if self.kept(place, len(points))]
        table = Run._table(self, spans=spans)
        failed = [
            {"rank": 0, "gpu": self.gpu(0), **vars(point), "status": OUT_OF_MEMORY, "warm_up": False}
            for point in ([] if spans else points)
            if point.point not in left
        ]
        rows = table[table["point"].isin(left)].dropna(axis="columns", how="all") if len(table) else table
        parts = [part for part in (rows, pd.DataFrame(failed)) if len(part)]
        return of_run(pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(), self)


def install(gaps: str) -> None:
    """Let every launch of a recorded plan return its run with these gaps (of KEPT)."""

    def with_gaps(path: str) -> Run:
        run = RunWithGaps(replay(path).folder)
        if type(run.plan).__name__ in SMALL_EVERYWHERE:
            return replay(path)
        run.kept = KEPT[gaps]
        return run

    launching.replay = with_gaps
