"""What matters of lab 14: lines, bytes and steps over a link of a known rate, beside the rate and beside theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.measures import Measured, Shown, figure
from lessons.beyond_the_node.tables import exchanges, levels_gain, strategies, two_lines

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _off_rate(link_mbit: int) -> Shown:
    def measured(run: Run) -> Measured | None:
        lines = two_lines(run)
        for row in lines[(lines["place"] == "between") & (lines["link_mbit"] == link_mbit)].itertuples():
            return figure(run, 100 * (row.share_of_rate - 1), 100 * row.spread_share_of_rate)
        return None

    return measured


def _gain_off(run: Run) -> Measured:
    gain = levels_gain(run)
    largest = gain[gain["kib"] == gain["kib"].max()]
    return figure(run, 100 * (largest["bytes_gain"] / largest["expected_gain"] - 1).abs().max())


def _step_bytes_off(run: Run) -> Measured:
    table = strategies(run)
    rows = table[table["expected_link_mib"] > 0]
    return figure(run, 100 * (rows["link_mib"] / rows["expected_link_mib"] - 1).abs().max())


def _fsdp_over_hsdp(run: Run) -> Measured | None:
    """Return FSDP's step over HSDP's at the slowest link that was set."""
    table = strategies(run)
    table = table[table["link_mbit"] > 0]
    rows = table[table["link_mbit"] == table["link_mbit"].min()].drop_duplicates("strategy").set_index("strategy")
    if not {"fsdp", "hsdp"} <= {*rows.index}:
        return None
    ratio = rows["step_ms"]["fsdp"] / rows["step_ms"]["hsdp"]
    return figure(run, ratio, ratio * (rows["spread_step_ms"] / rows["step_ms"])[["fsdp", "hsdp"]].sum())


def _exchange_off(run: Run) -> Measured:
    rare = exchanges(run).iloc[-1]
    return figure(run, 100 * (rare["link_mib"] / rare["expected_link_mib"] - 1))


def _apart(run: Run) -> Measured:
    return figure(run, exchanges(run)["apart"].max())


FIGURES = {
    "rate_1000": _off_rate(1000),
    "rate_300": _off_rate(300),
    "rate_100": _off_rate(100),
    "levels": _gain_off,
    "step_bytes": _step_bytes_off,
    "fsdp_over_hsdp": _fsdp_over_hsdp,
    "exchange": _exchange_off,
    "apart": _apart,
}
