"""What a run of lab 14 reaches of the lab's targets: lines, bytes and predictions over a link of a known rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import fact, of_source
from labkit.tables.targets import CODE, HOST, Target, card, join_cards
from lessons.beyond_the_node.tables.measured import exchanges, levels_gain, strategies, two_lines

if TYPE_CHECKING:
    from labkit.engine.run import Run

GOAL_RATE, GOAL_BYTES, GOAL_GAIN = 10.0, 10.0, 10.0  # %
LAB = "beyond_the_node"


def scorecard(run: Run) -> pd.DataFrame:
    """Return the targets that this run can show, as of `labkit.tables.targets.card`; none from a single node.

    Bytes and lines of a shaped link need no GPU.
    """
    by_plan = {"messages": _messages, "strategies": _strategies, "localsteps": _local_steps}
    shown = by_plan[run.plan.name](run) if run.node_count > 1 and run.plan.name in by_plan else []
    table = card(LAB, shown)
    conditions = run.key_conditions() if shown else {}
    of_targets = {key: (depends_on, conditions) for key, (depends_on, _) in fact(table, "of_targets").items()}
    return of_source(table, run.source, of_targets=of_targets)


def targets_of(runs: Iterable[Run]) -> pd.DataFrame:
    """Return the targets that some runs show, one card."""
    return join_cards(*map(scorecard, runs))


def _messages(run: Run) -> list[Target]:
    lines, gain = two_lines(run), levels_gain(run)
    shaped = lines[(lines["place"] == "between") & (lines["link_mbit"] > 0)]
    targets = []
    for row in shaped.itertuples():
        off, spread = 100 * (row.share_of_rate - 1), 100 * row.spread_share_of_rate
        what = f"line between nodes, from the rate set, {row.link_mbit} Mbit/s"
        targets.append(Target(what, off, "within ±", GOAL_RATE, "%", spread, depends_on=HOST))
    largest = gain[gain["kib"] == gain["kib"].max()]
    off = 100 * float((largest["bytes_gain"] / largest["expected_gain"] - 1).abs().max())
    what = "bytes of a flat over a hierarchical all-reduce, from theory"
    return [*targets, Target(what, off, "within ±", GOAL_GAIN, "%", depends_on=CODE)]


def _strategies(run: Run) -> list[Target]:
    table = strategies(run)
    rows = table[table["expected_link_mib"] > 0]
    off = 100 * float((rows["link_mib"] / rows["expected_link_mib"] - 1).abs().max())
    what = f"bytes over the link, largest distance from theory, of {len(rows)} settings"
    return [Target(what, off, "≤", GOAL_BYTES, "%", depends_on=CODE), *_faster(table)]


def _faster(table: pd.DataFrame) -> list[Target]:
    """Return how much faster HSDP's step is than FSDP's at the slowest link, in two parts that theory puts at 2.25."""
    rows = table[table["link_mbit"] > 0]
    slowest = rows["link_mbit"].min()
    rows = rows[rows["link_mbit"] == slowest]
    found = [rows[rows["strategy"] == strategy] for strategy in ("fsdp", "hsdp")]
    if any(of_one.empty for of_one in found):
        return []
    fsdp, hsdp = (of_one.iloc[0] for of_one in found)
    ratio = float(fsdp["step_ms"] / hsdp["step_ms"])
    spread = ratio * float(fsdp["spread_step_ms"] / fsdp["step_ms"] + hsdp["spread_step_ms"] / hsdp["step_ms"])
    return [Target(f"FSDP's step over HSDP's, {slowest} Mbit/s", ratio, ">", 1, "×", spread, depends_on=HOST)]


def _local_steps(run: Run) -> list[Target]:
    table = exchanges(run)
    rare = table[table["every"] == table["every"].max()].iloc[0]
    what = f"bytes of an exchange every {int(rare['every'])} steps, from theory"
    off = 100 * float(rare["link_mib"] / rare["expected_link_mib"] - 1)
    return [
        Target(what, off, "within ±", GOAL_BYTES, "%", depends_on=CODE),
        Target(
            "largest difference of two ranks' weights after the last exchange",
            float(table["apart"].max()),
            "=",
            0,
            depends_on=CODE,
        ),
    ]
