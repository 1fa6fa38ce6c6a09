"""What matters of lab 14: lines, bytes and steps over a link of a known rate, beside the rate and beside theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, figure, figure_of, ratio
from lessons.beyond_the_node.tables import strategies, two_lines

if TYPE_CHECKING:
    from labkit.engine.run import Run


def off_rate(run: Run, link_mbit: int) -> Measured | None:
    lines = two_lines(run)
    off = lines.assign(off=lines["share_of_rate"] - 1, spread_off=lines["spread_share_of_rate"])
    return figure_of(run, off, "off", 100, place="between", link_mbit=link_mbit)


def step_bytes_off(run: Run) -> Measured:
    table = strategies(run)
    rows = table[table["expected_link_mib"] > 0]
    return figure(run, 100 * (rows["link_mib"] / rows["expected_link_mib"] - 1).abs().max())


def fsdp_over_hsdp(run: Run) -> Measured | None:
    """Return FSDP's step over HSDP's at the slowest link that was set."""
    table = strategies(run)
    slowest = table["link_mbit"][table["link_mbit"] > 0].min()
    return ratio(*(figure_of(run, table, "step_ms", strategy=name, link_mbit=slowest) for name in ("fsdp", "hsdp")))
