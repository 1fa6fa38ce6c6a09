"""What two reports say about broadcasting one host tensor to four GPUs, recomputed from the recorded run."""

from __future__ import annotations

import math
from typing import Any

from labkit.engine.run import replay
from labkit.node import limits
from labkit.provenance import fact
from labkit.tables.claims import claim
from labkit.tables.published import published, report_names
from lessons.broadcast.tables import REPORTED, ablation, ladder, methods

RECORDED = "h200x4/broadcast/sweep"
NEAR = 1.25  # another node may differ by this factor
FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"
_H100: Any = limits.spec("NVIDIA H100 80GB HBM3")


def _printed(report: str, before: str, after: str) -> float:
    """Return how many times as fast the report's `after` is as its `before`."""
    table = published("broadcast")
    seconds = table[table["report"] == report].set_index("method")["seconds"]
    return round(seconds[before] / seconds[after], 3)


def _recorded(before: str, memory_before: str, after: str, memory_after: str) -> float:
    """Return the same ratio between two settings of the recorded run, each method with its best chunk count."""
    seconds = ablation(methods(replay(RECORDED))).set_index("method")
    return (
        seconds.loc[REPORTED[before], f"{memory_before}_seconds"]
        / (seconds.loc[REPORTED[after], f"{memory_after}_seconds"])
    )


def _near(printed: float, recomputed: float) -> bool:
    return 1 / NEAR <= printed / recomputed <= NEAR


def _staging(report: str) -> tuple[float, float, bool]:
    printed = _printed(report, "broadcast1", "broadcast2")
    recomputed = _recorded("broadcast1", "pageable", "broadcast2", "pageable")
    return printed, recomputed, _near(printed, recomputed)


@claim(FOUR, "broadcast2 (staged) is faster than broadcast1 (direct): the ratio of its seconds", "×")
def staging_4xh100():
    """From pageable memory one copy replaces four that run one after another."""
    return _staging(FOUR)


@claim(EIGHT, "broadcast2 (staged) is faster than broadcast1 (direct): the ratio of its seconds", "×")
def staging_8xh100():
    """From pageable memory one copy replaces four that run one after another."""
    return _staging(EIGHT)


@claim(FOUR, "The path makes broadcast3 (pipelined) faster than broadcast2: the ratio of its seconds", "×")
def pipelining_4xh100():
    """In the recorded run the path alone, with the memory unchanged, gains much less, from pageable and from pinned
    memory alike. If the tensor holds 4 GiB, broadcast2's seconds fit pageable memory and broadcast3's fit only pinned
    memory. So the path and the memory changed together."""
    printed = _printed(FOUR, "broadcast2", "broadcast3")
    recomputed = max(_recorded("broadcast2", memory, "broadcast3", memory) for memory in ("pageable", "pinned"))
    return printed, recomputed, printed <= NEAR * recomputed


@claim(EIGHT, "Pinned memory, streams and chunks make broadcast3 faster than broadcast2: the ratio", "×")
def pipelining_8xh100():
    """The report names pin_memory=True first among its choices. The recorded step changes the memory, too."""
    printed = _printed(EIGHT, "broadcast2", "broadcast3")
    recomputed = _recorded("broadcast2", "pageable", "broadcast3", "pinned")
    return printed, recomputed, _near(printed, recomputed)


def _sizes(report: str) -> tuple[str, str, None]:
    """Return between which sizes of the tensor the report's three times keep their nearest memory, in GiB.

    The host link of an H100 bounds them, too: `broadcast3` brings the whole tensor through one.
    """
    table = ladder(published("broadcast"), methods(replay(RECORDED)))
    middle = (fact(table, "pageable") * fact(table, "pinned")) ** 0.5
    rows = table[table["report"] == report_names()[report]]
    sizes = 4 * middle / rows["copy_gb_per_s"]  # the rate of one copy grows with the size that one assumes
    pinned = rows["nearest_memory"] == "pinned"
    through_link = 1e9 * (_H100.pcie_gb_per_s or math.inf) * rows["seconds"].min() / 2**30
    return "no size", f"{sizes[pinned].max():.1f} to {min(sizes[~pinned].min(), through_link):.1f} GiB", None


@claim(FOUR, "The seconds of three broadcasts are printed; the tensor's size is left out")
def size_4xh100():
    """Without a size, seconds give no rate. The program that the course hands out fills 3.7 GiB; this notebook assumes
    4 GiB. With any size in the recomputed range, `nearest_memory` in the table above stays the same in all rows. A
    larger tensor would pass through one host link faster than the datasheet's 64 GB/s."""
    return _sizes(FOUR)


@claim(EIGHT, "The seconds of three broadcasts are printed; the tensor's size is left out")
def size_8xh100():
    """Without a size, seconds give no rate. The program that the course hands out fills 3.7 GiB; this notebook assumes
    4 GiB. With any size in the recomputed range, `nearest_memory` in the table above stays the same in all rows. A
    larger tensor would pass through one host link faster than the datasheet's 64 GB/s."""
    return _sizes(EIGHT)
