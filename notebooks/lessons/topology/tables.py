"""Rows of lab 01 → tables: paths as nvidia-smi names them, copies as they were measured, and what contradicts what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from labkit.node.limits import against_limit, least_seconds_to_move, spec
from labkit.provenance import fact, like, of_run, of_source, sources
from labkit.tables.published import report_names

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SUSPICIOUS = 0.25  # a copy of a large buffer below a quarter of its link's rate wants an explanation


def devices(topology) -> pd.DataFrame:
    """Return the devices of a parsed topology: device, kind, numa, close_cpus (ranges, or what is unread), label."""
    rows = [
        (d.name, d.kind, d.numa, _ranges(d.cpus) or (d.unread and f"unknown ({d.unread})"), d.label)
        for d in topology.devices
    ]
    return pd.DataFrame(rows, columns=["device", "kind", "numa", "close_cpus", "label"])


def _ranges(numbers) -> str:
    """Return numbers as nvidia-smi does: "0-19,64-83"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def link_rate(gpu_name: str) -> float | None:
    """Return GB/s of one NVLink of this GPU, one way; None where no datasheet is known."""
    known = spec(gpu_name)
    return known.nvlink_gb_per_s_per_link if known else None


def copy_matrix(run: Run) -> pd.DataFrame:
    """Return one row per ordered GPU pair: source, target, seconds, gb_per_s, then limit, share_of_limit and verdict.

    The limit is the sender's NVLinks together, or, within one GPU, half its memory's rate (a copy reads and writes).
    """
    rows = run.rows[run.rows["copy"] == "gpu_to_gpu"]
    table = _rates(rows, ["source", "target"])
    known = spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None
    nvlink, memory = (known.nvlink_gb_per_s, known.hbm_gb_per_s) if known else (None, None)
    table["nominal_gb_per_s"] = [
        (memory / 2 if memory else None) if a == b else nvlink
        for a, b in zip(table["source"], table["target"], strict=True)
    ]
    table["nominal_gb_per_s"] = table["nominal_gb_per_s"].astype(float)
    return _checked(table, run)


def host_links(run: Run) -> pd.DataFrame:
    """Return one row per way between host and GPU: copy, memory, numa, together, rank, gb_per_s, share, verdict."""
    rows = run.rows[run.rows["copy"] != "gpu_to_gpu"]
    table = _rates(rows, ["copy", "memory", "numa", "together", "rank"])
    known = spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None
    table["nominal_gb_per_s"] = float("nan") if known is None else known.pcie_gb_per_s
    return _checked(table, run)


def host_summary(links: pd.DataFrame) -> pd.DataFrame:
    """Return, per direction and memory, GB/s of one GPU alone (median) and of all GPUs while all copy.

    all_at_once_gb_per_s is their sum, each_then_gb_per_s what each gets, share_kept its share of the rate alone.

    Where host memory lies on several NUMA nodes, the best node of each GPU counts.
    """
    best = links.groupby(["copy", "memory", "together", "rank"], as_index=False, sort=False)["gb_per_s"].max()
    alone = best[~best["together"].astype(bool)].groupby(["copy", "memory"], sort=False)["gb_per_s"].median()
    together = best[best["together"].astype(bool)].groupby(["copy", "memory"], sort=False)["gb_per_s"]
    table = pd.DataFrame(
        {
            "alone_gb_per_s": alone,
            "all_at_once_gb_per_s": together.sum(),
            "each_then_gb_per_s": together.median(),
            "gpus": together.count(),
        }
    ).reset_index()
    table["share_kept"] = table["each_then_gb_per_s"] / table["alone_gb_per_s"]
    return like(table, links)


def numa_effect(links: pd.DataFrame) -> pd.DataFrame:
    """Return each GPU's best and worst NUMA node with their rates, pinned and alone; empty where there is one node."""
    rows = links[(links["memory"] == "pinned") & ~links["together"].astype(bool)]
    wide = rows[rows["copy"] == "host_to_gpu"].pivot_table(index="rank", columns="numa", values="gb_per_s")
    table = pd.DataFrame(
        {
            "gpu": wide.index,
            "near": wide.idxmax(axis=1).values,
            "near_gb_per_s": wide.max(axis=1).values,
            "far": wide.idxmin(axis=1).values,
            "far_gb_per_s": wide.min(axis=1).values,
        }
    )
    return like(table if wide.shape[1] > 1 else table.iloc[:0], links)


def nominal(gpu_name: str, mib: int = 4096) -> pd.DataFrame:
    """Return the links of a GPU by its datasheet: link, gb_per_s, and the least milliseconds for `mib` MiB over each.

    Empty for a GPU whose datasheet we do not have: no limit is known.
    """
    known = spec(gpu_name)
    if known is None:
        return pd.DataFrame(columns=["link", "gb_per_s", "ms", "from"])
    rows = [
        ("GPU memory (HBM)", known.hbm_gb_per_s),
        ("all NVLinks of a GPU, one direction", known.nvlink_gb_per_s),
        ("host ↔ GPU (PCIe), one direction", known.pcie_gb_per_s),
    ]
    table = pd.DataFrame(rows, columns=["link", "gb_per_s"]).dropna().astype({"gb_per_s": float})
    table["ms"] = [1e3 * least_seconds_to_move(mib * 2**20, rate) for rate in table["gb_per_s"]]
    return of_source(table, f"datasheet of {gpu_name}: {known.source}", bytes=mib * 2**20)


def on_nodes(node_of_gpu: Mapping[str, int | None]) -> str:
    """Return which GPUs hang at each NUMA node, in short: "0, 1 | 2, 3" for two nodes with two GPUs each."""
    nodes = sorted({node for node in node_of_gpu.values() if node is not None})
    members = ([gpu.removeprefix("GPU") for gpu, node in node_of_gpu.items() if node == one] for one in nodes)
    return " | ".join(", ".join(gpus) for gpus in members)


def claimed_sockets(claimed: pd.DataFrame) -> pd.DataFrame:
    """Return, per report, the GPUs that its text puts on each NUMA node: report, and one column per node."""
    rows = claimed.assign(report=claimed["report"].map(report_names()))
    table = rows.pivot_table(index="report", columns="numa", values="gpu", aggfunc=", ".join, sort=False)
    return of_source(table.add_prefix("NUMA node ").rename_axis(columns=None).reset_index(), sources(claimed))


def compare(measured: pd.DataFrame, recorded: pd.DataFrame, links: list[pd.DataFrame], predicted=None) -> pd.DataFrame:
    """Return predicted, nominal, measured and recorded GB/s of two ways: way, origin, gb_per_s.

    `links` are the two runs' `host_links`, in the same order. A measured run without GPUs is left out: its copies cross
    no link.
    """
    rows = []
    for origin, matrix, hosts in (("measured", measured, links[0]), ("recorded", recorded, links[1])):
        if fact(matrix, "device") != "cuda":
            continue
        pairs = matrix[matrix["source"] != matrix["target"]]
        into = hosts[(hosts["copy"] == "host_to_gpu") & (hosts["memory"] == "pinned") & ~hosts["together"].astype(bool)]
        rows += [
            ("GPU → GPU", origin, pairs["gb_per_s"].median()),
            ("host → GPU, pinned", origin, into["gb_per_s"].median()),
        ]
    pairs = recorded[recorded["source"] != recorded["target"]]
    rows.append(("GPU → GPU", "nominal", pairs["nominal_gb_per_s"].iloc[0]))
    rows.append(("host → GPU, pinned", "nominal", links[1]["nominal_gb_per_s"].iloc[0]))
    if (guess := getattr(predicted, "value", predicted)) is not None:
        rows.append(("GPU → GPU", "predicted", guess))
    shown = sources(*(matrix for matrix in (measured, recorded) if fact(matrix, "device") == "cuda"))
    table = pd.DataFrame(rows, columns=["way", "origin", "gb_per_s"])
    return of_source(table, " · ".join(filter(None, [shown, "nominal: datasheet"])))


def _rates(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    good = rows[~rows["warm_up"].astype(bool)]
    grouped = good.groupby(by, sort=False)["gb_per_s"]
    table = pd.DataFrame(
        {
            "gb_per_s": grouped.median(),
            "spread_gb_per_s": (grouped.quantile(0.75) - grouped.quantile(0.25)) / 2,
            "count": grouped.count(),
        }
    ).reset_index()
    for name in {"source", "target", "rank", "numa"} & set(table.columns):
        table[name] = table[name].astype(int)
    return table


def _checked(table: pd.DataFrame, run: Run) -> pd.DataFrame:
    low = _SUSPICIOUS if run.plan.size == "full" else None
    table = against_limit(table, "gb_per_s", "nominal_gb_per_s", low=low).drop(columns=["limit"])
    return of_run(table, run, device=run.plan.device)
