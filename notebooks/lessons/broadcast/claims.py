"""What two reports say about broadcasting one host tensor to four GPUs, recomputed from the recorded run."""

from __future__ import annotations

import math

from labkit.engine.recordings import replay
from labkit.provenance import fact
from labkit.tables.claims import Figures, undecided, within
from labkit.tables.published import EIGHT, FOUR, H100, published, report_names
from labkit.theory.sizes import GIB
from lessons.broadcast.tables import REPORTED, ablation, ladder, methods

RECORDED = "h200x4/broadcast/sweep"
NEAR = within(1.25)  # another node may differ by this factor


def _printed(report: str, before: str, after: str) -> float:
    """Return how many times as fast the report's `after` is as its `before`."""
    table = published("broadcast")
    seconds = table[table["report"] == report].set_index("method")["seconds"]
    return round(seconds[before] / seconds[after], 3)


def _recorded_ratio(before: str, memory_before: str, after: str, memory_after: str) -> float:
    """Return the same ratio between two settings of the recorded run, each method with its best chunk count."""
    seconds = ablation(methods(replay(RECORDED))).set_index("method")
    earlier = seconds.loc[REPORTED[before], f"{memory_before}_seconds"]
    return earlier / seconds.loc[REPORTED[after], f"{memory_after}_seconds"]


def _path_alone() -> float:
    """Return what the path gains from broadcast2 to broadcast3 with the memory unchanged: the larger of both gains."""
    return max(_recorded_ratio("broadcast2", memory, "broadcast3", memory) for memory in ("pageable", "pinned"))


def _sizes(report: str) -> str:
    """Return between which sizes of the tensor the report's three times keep their nearest memory.

    The host link of an H100 bounds them, too: `broadcast3` brings the whole tensor through one.
    """
    table = ladder(published("broadcast"), methods(replay(RECORDED)))
    middle = (fact(table, "pageable") * fact(table, "pinned")) ** 0.5
    rows = table[table["report"] == report_names()[report]]
    sizes = 4 * middle / rows["copy_gb_per_s"]  # the rate of one copy grows with the size that one assumes
    pinned = rows["nearest_memory"] == "pinned"
    through_link = 1e9 * (H100.pcie_gb_per_s or math.inf) * rows["seconds"].min() / GIB
    return f"{sizes[pinned].max():.1f} to {min(sizes[~pinned].min(), through_link):.1f} GiB"


FIGURES = {
    "staging_4xh100": Figures(
        lambda: _printed(FOUR, "broadcast1", "broadcast2"),
        lambda: _recorded_ratio("broadcast1", "pageable", "broadcast2", "pageable"),
        NEAR,
    ),
    "pipelining_4xh100": Figures(
        lambda: _printed(FOUR, "broadcast2", "broadcast3"),
        _path_alone,
        lambda printed, recomputed: printed <= 1.25 * recomputed,
    ),
    "pipelining_8xh100": Figures(
        lambda: _printed(EIGHT, "broadcast2", "broadcast3"),
        lambda: _recorded_ratio("broadcast2", "pageable", "broadcast3", "pinned"),
        NEAR,
    ),
    "size_4xh100": Figures(lambda: "no size", lambda: _sizes(FOUR), undecided),
    "staging_8xh100": Figures(
        lambda: _printed(EIGHT, "broadcast1", "broadcast2"),
        lambda: _recorded_ratio("broadcast1", "pageable", "broadcast2", "pageable"),
        NEAR,
    ),
    "size_8xh100": Figures(lambda: "no size", lambda: _sizes(EIGHT), undecided),
}
