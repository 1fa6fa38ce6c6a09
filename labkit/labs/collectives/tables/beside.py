"""Ours beside others': nccl-tests' programs, the library's all-reduce beside the ring by hand, and wrong benchmarks."""

from __future__ import annotations

import pandas as pd

from labkit.labs.collectives.tables.measured import about, bandwidths, summed, worst
from labkit.labs.collectives.theory import ring

KEYS = ["collective", "ranks", "bytes"]
SHOWN = [
    "variant",
    "collective",
    "ranks",
    "message_bytes",
    "seconds",
    "late_seconds",
    "again_seconds",
    "calls_before",
    "claimed_gb_per_s",
    "bus_gb_per_s",
    "wrong_ranks",
    "wrong_on_rank_0",
    "wrong_share",
]


def against(run) -> pd.DataFrame:
    """Give one row a collective and size: our bus bandwidth, nccl-tests', and ours over theirs.

    Both lie alike (`placement`). ratio is NaN, and status and said tell why, where there is nothing of theirs. attrs:
    installed (whether any program was found) and version.
    """
    own = _of(run, "ours")
    ours = bandwidths(run).drop(columns=["limit", "share_of_limit", "verdict"])
    ours = ours[ours["median_us"].notna()].merge(own[[*KEYS, "placement"]].drop_duplicates(), on=KEYS)
    theirs = _of(run, "nccl-tests").reindex(columns=[*KEYS, "placement", "seconds", "bus_gb_per_s", "status", "said"])
    by_seed = theirs[theirs["seconds"].notna()].groupby([*KEYS, "placement"], sort=False)
    timed = by_seed.agg({"bus_gb_per_s": "median", "status": worst}).reset_index()
    table = ours.merge(
        timed[[*KEYS, "placement", "bus_gb_per_s", "status"]],
        on=[*KEYS, "placement"],
        how="left",
        suffixes=("_ours", "_theirs"),
    )
    table = table.rename(columns={"bus_gb_per_s_ours": "ours_gb_per_s", "bus_gb_per_s_theirs": "theirs_gb_per_s"})
    untimed = theirs[theirs["seconds"].isna()].drop_duplicates("collective")
    failed = untimed.set_index("collective")[["status", "said"]].to_dict("index")
    table["status"] = [_status(row, failed.get(row.collective, {})) for row in table.itertuples()]
    table["said"] = [failed.get(name, {}).get("said", "") for name in table["collective"]]
    table["ratio"] = (table["ours_gb_per_s"] / table["theirs_gb_per_s"]).where(table["status"] == "ok")
    table["spread_share"] = table["spread_us"] / table["median_us"]
    columns = [*KEYS, "placement", "ours_gb_per_s", "theirs_gb_per_s", "ratio", "spread_share", "status", "said"]
    versions = _of(run, "nccl-tests").reindex(columns=["version"])["version"].dropna()
    installed = bool((theirs["status"] != "not installed").any())
    return about(table[columns], run, installed=installed, version=versions.iloc[0] if len(versions) else "")


def rings(run) -> pd.DataFrame:
    """Give one row a number of ranks and length: the ring by hand and the library's all-reduce, in µs, and bytes sent.

    times is ours over the library's; formula_bytes is what rank 0 sends of chunks of these lengths.
    """
    keys = ["ranks", "elements"]
    table = summed(run.rows, [*keys, "method"])
    ours, library = (table[table["method"] == name].set_index(keys) for name in ("ours", "library"))
    made = pd.DataFrame(
        {
            "ours_us": ours["median_us"],
            "spread_ours_us": ours["spread_us"],
            "library_us": library["median_us"],
            "spread_library_us": library["spread_us"],
            "times": ours["median_us"] / library["median_us"],
            "status": ours["status"].where(ours["status"] != "ok", library["status"]),
        }
    ).reset_index()
    counted = run.rows[run.rows["method"] == "ours"].groupby(keys)["sent_bytes"].max()
    made["bytes"] = 4 * made["elements"]
    made["sent_bytes"] = counted.reindex(pd.MultiIndex.from_frame(made[keys])).to_numpy()
    made["formula_bytes"] = [4 * ring.sent_elements(0, row.elements, row.ranks) for row in made.itertuples()]
    return about(made, run)


def symptoms(run) -> pd.DataFrame:
    """Give one row a variant of a Trial: what its benchmark shows, and what is so (SHOWN)."""
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, *SHOWN])])
    return about(rows[rows["rank"] == 0][SHOWN].reset_index(drop=True), run)


def _status(row, failed: dict) -> str:
    if row.status_ours != "ok":
        return f"ours: {row.status_ours}"
    return failed.get("status", "not printed") if pd.isna(row.status_theirs) else row.status_theirs


def _of(run, source: str) -> pd.DataFrame:
    return run.rows[run.rows["source"] == source]
