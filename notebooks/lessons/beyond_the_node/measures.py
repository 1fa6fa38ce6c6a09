"""What matters of lab 14: lines, bytes and steps over a link of a known rate, beside the rate and beside theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.tables.measures import CODE, HOST, LOWER, Measure, Measured, figure
from lessons.beyond_the_node.plan import RATES_MBIT
from lessons.beyond_the_node.tables import exchanges, levels_gain, strategies, two_lines

if TYPE_CHECKING:
    from labkit.engine.run import Run

    Shown = Callable[[Run], Measured | None]


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


def _measure(name: str, unit: str, plan: str, measured: Shown, comparison: str, goal: float, **more: Any) -> Measure:
    fields: dict[str, Any] = {"better": LOWER, "depends_on": CODE, "on_card": False, "between_nodes": True} | more
    return Measure(name=name, unit=unit, plan=plan, measured=measured, comparison=comparison, goal=goal, **fields)


MEASURES = (
    *(
        _measure(
            f"line between nodes, from the rate set, {link_mbit} Mbit/s",
            "%",
            "messages",
            _off_rate(link_mbit),
            "within ±",
            10,
            depends_on=HOST,
        )
        for link_mbit in RATES_MBIT
    ),
    _measure("bytes of a flat over a hierarchical all-reduce, off theory", "%", "messages", _gain_off, "≤", 10),
    _measure("bytes of a step over the link, most off theory", "%", "strategies", _step_bytes_off, "≤", 10),
    _measure(
        "FSDP's step over HSDP's at the slowest link",
        "×",
        "strategies",
        _fsdp_over_hsdp,
        ">",
        1,
        better="higher",
        depends_on=HOST,
    ),
    _measure("bytes of the rarest exchange, from theory", "%", "localsteps", _exchange_off, "within ±", 10),
    _measure("largest difference of two ranks' weights at the end", "", "localsteps", _apart, "=", 0),
)
