"""Texts beside marks that may lie anywhere: each at the first place around its marks where nothing else stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import networkx
import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

GAPS = (1, 7, 14, 22, 32, 44, 58)  # points between a text and its marks
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # a line may pass below a text


class Labels:
    """The marks of axes, and the texts beside them. The figure is finished: what came later could move the marks."""

    def __init__(self, ax: Axes, xs: Sequence[float], ys: Sequence[float], diameters: Sequence[float]):
        """`diameters` are in points."""
        from matplotlib.transforms import Bbox

        figure: Any = ax.figure
        figure.draw_without_rendering()  # lays it out
        self.ax, self.at, self._point = ax, list(zip(xs, ys, strict=True)), figure.dpi / 72
        self.spots = ax.transData.transform(self.at)
        self.radii = np.asarray(diameters) * self._point / 2
        corners = zip(self.spots - self.radii[:, None], self.spots + self.radii[:, None], strict=True)
        self._marks = [Bbox(both) for both in corners]
        self._taken = [*self._marks]

    def groups(self) -> list[list[int]]:
        """Return the marks by number: one touches another mark of its group, and none of another group."""
        touching = networkx.Graph()
        touching.add_nodes_from(range(len(self.at)))
        for spot in touching:
            away = np.hypot(*(self.spots - self.spots[spot]).T)
            touching.add_edges_from((spot, other) for other in np.flatnonzero(away < self.radii + self.radii[spot]))
        return [sorted(group) for group in networkx.connected_components(touching)]

    def inside(self, mark: int, text: str, **style: Any) -> None:
        """Write a text into a mark."""
        self.ax.annotate(text, self.at[mark], ha="center", va="center", zorder=5, **style)

    def beside(self, group: Sequence[int], text: str, *, always: bool = True, **style: Any) -> None:
        """Write a text beside these marks; where no place is free, only if it is `always` needed: then at the first."""
        from matplotlib.transforms import Bbox

        style |= {"textcoords": "offset points", "ha": "center", "va": "center", "bbox": CLEAR, "zorder": 5}
        label = self.ax.annotate(text, self.at[group[0]], (0, 0), **style)
        box = label.get_window_extent()
        places = list(self._around(Bbox.union([self._marks[mark] for mark in group]), box.width, box.height))
        free = next((place for place in places if self._is_free(place)), places[0] if always else None)
        if free is None:
            label.remove()
            return
        self._taken.append(free)
        label.set_position((np.mean(free.get_points(), axis=0) - self.spots[group[0]]) / self._point)

    def _around(self, marks: Bbox, width: float, height: float) -> Iterator[Bbox]:
        """Yield places to the right, left, above and below, at the middle first, nearest first."""
        from matplotlib.transforms import Bbox

        x, y = marks.x0 + marks.width / 2, marks.y0 + marks.height / 2
        for gap in (self._point * gap for gap in GAPS):
            across, up = (marks.width + width) / 2 + gap, (marks.height + height) / 2 + gap
            for dx, dy in ((across, 0), (-across, 0), (0, up), (0, -up), (across, up), (across, -up), (-across, up)):
                yield Bbox.from_bounds(x + dx - width / 2, y + dy - height / 2, width, height)

    def _is_free(self, place: Bbox) -> bool:
        axes = self.ax.get_window_extent()
        inside = axes.x0 <= place.x0 and place.x1 <= axes.x1 and axes.y0 <= place.y0 and place.y1 <= axes.y1
        return inside and not any(place.padded(self._point).overlaps(other) for other in self._taken)
