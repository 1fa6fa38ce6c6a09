"""What two reports say about broadcasting one host tensor to four GPUs, recomputed from the recorded run."""

from __future__ import annotations

from labkit.engine.recordings import replay
from labkit.tables.claims import Figures, within
from labkit.tables.published import EIGHT, FOUR, published
from lessons.broadcast.tables import REPORTED, ablation, methods

RECORDED = "h200x4/broadcast/sweep"
NEAR = within(1.25)  # another node may differ by this factor


def _printed(report: str, before: str, after: str) -> float:
    """Return how many times as fast the report's `after` is as its `before`."""
    table = published("broadcast")
    seconds = table[table["report"] == report].set_index("method")["seconds"]
    return round(seconds[before] / seconds[after], 3)


def _stated(report: str) -> str:
    """Return what the report names as the cause of its faster broadcasts, or first among its choices."""
    return published("broadcast_statements").set_index("report")["value"][report]


def _recorded_ratio(before: str, memory_before: str, after: str, memory_after: str) -> float:
    """Return the same ratio between two settings of the recorded run, each method with its best chunk count."""
    seconds = ablation(methods(replay(RECORDED))).set_index("method")
    earlier = seconds.loc[REPORTED[before], f"{memory_before}_seconds"]
    return earlier / seconds.loc[REPORTED[after], f"{memory_after}_seconds"]


def _path_alone() -> float:
    """Return what the path gains from broadcast2 to broadcast3 with the memory unchanged: the larger of both gains."""
    return max(_recorded_ratio("broadcast2", memory, "broadcast3", memory) for memory in ("pageable", "pinned"))


FIGURES = {
    "staging_4xh100": Figures(
        lambda: _printed(FOUR, "broadcast1", "broadcast2"),
        lambda: _recorded_ratio("broadcast1", "pageable", "broadcast2", "pageable"),
        NEAR,
    ),
    "pipelining_4xh100": Figures(
        lambda: f"{_printed(FOUR, 'broadcast2', 'broadcast3')} ×, by {_stated(FOUR)}",
        _path_alone,
        lambda _, recomputed: _printed(FOUR, "broadcast2", "broadcast3") <= 1.25 * recomputed,
    ),
    "pipelining_8xh100": Figures(
        lambda: f"{_printed(EIGHT, 'broadcast2', 'broadcast3')} ×, with {_stated(EIGHT)}",
        lambda: _recorded_ratio("broadcast2", "pageable", "broadcast3", "pinned"),
        lambda _, recomputed: NEAR(_printed(EIGHT, "broadcast2", "broadcast3"), recomputed),
    ),
}
