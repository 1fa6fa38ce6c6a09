"""Rows of lab 01 → tables: the wires as the driver prints them, the copies beside what a datasheet allows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from labkit.node.limits import against_limit, spec
from labkit.provenance import made_from, of_run

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SUSPICIOUS = 0.25  # a large copy below a quarter of its link's rate wants an explanation
_KNOBS = ["copy", "source", "target", "memory", "numa", "together", "rank"]
_PATHS = {  # what a copy crosses, on GPUs and on the CPU processes that take their place
    "cuda": {"within": "within a GPU", "between": "GPU → GPU", "into": "host → GPU", "out": "GPU → host"},
    "cpu": {
        "within": "within a process",
        "between": "process → process",
        "into": "host → own buffer",
        "out": "own buffer → host",
    },
}


def matrix(topology) -> pd.DataFrame:
    """Return what `nvidia-smi topo -m` prints: a row per device, the classes of its paths, a GPU's CPUs and node."""
    rows = {
        a.name: {b.name: topology.path(a.name, b.name).kind for b in topology.devices}
        | {
            "CPU affinity": _ranges(a.cpus) or (f"unknown ({a.unread})" if a.unread else "N/A"),
            "NUMA affinity": str(a.numa) if a.kind == "gpu" and a.numa is not None else "N/A",
        }
        for a in topology.devices
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as nvidia-smi does: "0-19,64-83"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def link_rate(gpu_name: str) -> float | None:
    """Return GB/s of one NVLink of this GPU, one way, as `nvidia-smi nvlink -s` shows it; None where unknown."""
    limits = spec(gpu_name)
    return limits.nvlink_gb_per_s_per_link if limits else None


def copies(run: Run) -> pd.DataFrame:
    """Return a row per copy: path, its knobs, rank, gb_per_s, spread_gb_per_s, datasheet_gb_per_s, share, verdict.

    The limit is the driver's rate of the sender's NVLinks together, or the datasheet's of the host link, or, within one
    GPU, of half its memory (a copy reads and writes). `share_of_limit` is the part of it that was reached. path is
    "within", "between", "into" or "out" (of a GPU); name is what it is called on this machine.
    """
    table = run.medians(_KNOBS, "gb_per_s")
    device, limits = run.plan.device, run.datasheet
    same = (table["source"] == table["target"]).map({True: "within", False: "between"})
    table["path"] = table["copy"].map({"host_to_gpu": "into", "gpu_to_host": "out"}).fillna(same)
    table["name"] = table["path"].map(_PATHS[device])
    rates: dict[str, float | None] = {}
    if limits:
        half = limits.hbm_gb_per_s / 2 if limits.hbm_gb_per_s else None
        rates = {"within": half, "between": limits.nvlink_gb_per_s} | dict.fromkeys(
            ("into", "out"), limits.pcie_gb_per_s
        )
    table["datasheet_gb_per_s"] = table["path"].map(rates).astype(float)
    low = _SUSPICIOUS if run.plan.size == "full" else None
    table = against_limit(table, "gb_per_s", "datasheet_gb_per_s", low=low).drop(columns=["limit"])
    size = f"{run.plan.mib / 1024:g} GiB" if run.plan.mib >= 1024 else f"{run.plan.mib} MiB"
    return of_run(table, run, who="GPU" if device == "cuda" else "process", size=size)


def ring_hops(run: Run) -> pd.DataFrame:
    """Return a row per ring and hop, in the ring's order: median gb_per_s, on GPUs also host_gb_per_s; status."""
    rows = run.rows[~run.rows["warm_up"]]
    rates = [name for name in ("gb_per_s", "host_gb_per_s") if name in rows]
    table = rows.groupby(["order", "rank", "hop", "numa", "status"], as_index=False)[rates].median()
    following = {(row.order, row.rank): row for row in table.itertuples(index=False)}
    hops = []
    for order in dict.fromkeys(table["order"]):
        rank = 0
        for _ in range(run.plan.gpus):
            hops.append(following[order, rank])
            rank = int(hops[-1].hop.split()[-1])
    return of_run(pd.DataFrame(hops), run)


def host_rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return per direction and memory the GB/s of one GPU alone (median), and of all GPUs while all copy; of `copies`.

    sum_gb_per_s is all of them together, each_gb_per_s what each gets, share_kept its share of the rate alone. Where
    host memory lies on several NUMA nodes, the best node of each GPU counts.
    """
    rows = table[table["path"].isin(["into", "out"])]
    by = ["path", "name", "memory"]
    best = rows.groupby([*by, "together", "rank"], as_index=False, sort=False)["gb_per_s"].max()
    alone, together = (best[best["together"] == all_copy].groupby(by, sort=False) for all_copy in (False, True))
    rates = {
        "alone_gb_per_s": alone["gb_per_s"].median(),
        "each_gb_per_s": together["gb_per_s"].median(),
        "sum_gb_per_s": together["gb_per_s"].sum(),
    }
    made = pd.DataFrame(rates).reset_index()
    made["share_kept"] = made["each_gb_per_s"] / made["alone_gb_per_s"]
    return made_from(made, table)


def far_losses(table: pd.DataFrame) -> pd.Series:
    """Return which share of a GPU's pinned host rate the far NUMA node costs; empty where there is one node."""
    rows = table[(table["path"] == "into") & (table["memory"] == "pinned") & table["together"].eq(False)]
    wide = rows.pivot_table(index="rank", columns="numa", values="gb_per_s")
    losses = 1 - wide.min(axis=1) / wide.max(axis=1)
    return losses if wide.shape[1] > 1 else losses.iloc[:0]


def alone(table: pd.DataFrame) -> pd.DataFrame:
    """Return the `copies` that nothing else disturbs: not those that all GPUs make simultaneously."""
    return made_from(table[~table["together"].eq(True)], table)
