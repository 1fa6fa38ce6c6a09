"""What a launch shows while it goes on: the bar of its points, and below it a line about what it waits for or does."""

from __future__ import annotations

import os
from typing import Any

from labkit.engine.interrupts import uninterrupted
from labkit.engine.plan import Plan


class Bars:
    """The bars of one launch, each made when it is first shown; none with progress=False or LABKIT_PROGRESS=0."""

    def __init__(self, plan: Plan, progress: bool):
        with uninterrupted():
            from tqdm.auto import tqdm
        self._tqdm: Any = tqdm
        self._plan, self._hidden = plan, not progress or os.environ.get("LABKIT_PROGRESS") == "0"
        self._points = self._line = None

    def points(self) -> Any:
        """Return the bar of the plan's points."""
        if self._points is None:
            title, points = f"{self._plan.lab}: starting workers", len(self._plan.points())
            self._points = self._tqdm(total=points, desc=title, unit="point", disable=self._hidden)
        return self._points

    def show_waiting(self, text: str) -> None:
        """Say below the bar what the launch waits for."""
        if self._line is None:
            self.points().set_description_str(f"{self._plan.lab}: waiting")
        self.show_below(text)

    def show_below(self, text: str) -> None:
        """Show a line of text below the bar, instead of the one before; it vanishes with the bar's end."""
        if self._line is None:
            self._line = self._tqdm(total=0, bar_format="{desc}", leave=False, position=1, disable=self._hidden)
        self._line.set_description_str(text)

    def remove_line(self) -> None:
        """Remove the line below the bar."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def close(self, finished: bool = True) -> None:
        """End what is shown. Where the run did not finish, its bar stays short of the end: a full one turns green."""
        self.remove_line()
        if (bar := self._points) is None:
            return
        if not finished:
            bar.set_description_str(f"{self._plan.lab}: not finished", refresh=False)
            bar.n = max(0, min(bar.n, bar.total - 1))
        bar.close()
