"""Rows of timed collectives → bus bandwidth, and the line fitted to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.node import limits
from labkit.provenance import of_run
from labkit.theory.alpha_beta import fit
from labkit.theory.sizes import GB, MIB
from labkit.theory.traffic import Sent, through_a_link

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["collective", "ranks", "kib"]


def links(run: Run) -> pd.DataFrame:
    """Return one row per collective, number of ranks and size: its time, and its bus bandwidth beside the limit.

    Columns: SETTING, median_us, spread_us, count, status, whole_bytes, link_bytes (what a ring sends through a link),
    bus_gb_per_s (these bytes over the median, as nccl-tests defines it), limit, share_of_limit and verdict. Only an
    all-reduce may also add in the switch, which allows it more.
    """
    table = run.medians(SETTING, "seconds").rename(columns={"seconds": "median_us", "spread_seconds": "spread_us"})
    table[["median_us", "spread_us"]] *= 1e6
    table = table.merge(run.rows.groupby(SETTING)["whole_bytes"].max().reset_index(), on=SETTING, how="left")
    rows = list(table.itertuples())
    table["link_bytes"] = [through_a_link([Sent(row.collective, 1, row.whole_bytes)], row.ranks) for row in rows]
    table["bus_gb_per_s"] = table["link_bytes"] / table["median_us"] * 1e6 / GB
    table["limit"] = [limits.bus_bandwidth_limit(run.datasheet, row.ranks, row.collective) for row in rows]
    return of_run(limits.against_limit(table, "bus_gb_per_s", "limit"), run)


def fits(run: Run) -> pd.DataFrame:
    """Return one row per collective and number of ranks: alpha_us, beta_gb_per_s, residual and knee_mib of its line.

    The line is over link_bytes, so β is a bus bandwidth. A collective with fewer than two sizes measured has no row.
    """
    lines = []
    for (collective, ranks), rows in links(run).dropna(subset="median_us").groupby(["collective", "ranks"], sort=False):
        if len(rows) > 1:
            line = fit(rows["link_bytes"], rows["median_us"] / 1e6)
            lines.append(
                (collective, ranks, 1e6 * line.alpha_s, line.beta_gb_per_s, line.residual, line.knee_bytes / MIB)
            )
    columns = ["collective", "ranks", "alpha_us", "beta_gb_per_s", "residual", "knee_mib"]
    return of_run(pd.DataFrame(lines, columns=columns), run)
