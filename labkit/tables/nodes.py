"""The nodes of a run as a table: what each is, how it reaches the others, and how its clock differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.provenance import of_run

if TYPE_CHECKING:
    from labkit.engine.run import Run


def nodes_table(run: Run) -> pd.DataFrame:
    """Return one row per node: `ranks`, `gpus`, `cpu`, `cores`, `driver`, `torch`, its network and its clock.

    `interface` leads to the other nodes; `link_gb_per_s` is the most that its link carries in one direction, by the
    kernel (NaN where the kernel does not tell it). `cards` names all cards of the node with their rates in Gbit/s.
    Facts, by node: `cards`, name and rate (None where not told) of each; `gpu_models` (None without, or of several).
    """
    clocks, workers = run.status.get("clocks", []), run.plan.gpus // run.node_count
    rows, cards = [], list[list[tuple[str, float | None]]]()
    for index, node in enumerate(run.nodes):
        network, clock = run.network(index), clocks[index] if index < len(clocks) else {}
        gbit_per_s = network.get("gbit_per_s")
        cards.append([(card["name"], card["gbit_per_s"]) for card in network.get("cards", [])])
        rows.append(
            {
                "node": index,
                "ranks": f"{index * workers} to {(index + 1) * workers - 1}",
                "gpus": node.label if node.gpus else "none",
                "cpu": node.cpu_name,
                "cores": node.cores,
                "driver": node.driver or "–",
                "torch": node.versions.get("torch", "–"),
                "interface": network.get("interface", "–"),
                "link_gb_per_s": float("nan") if gbit_per_s is None else gbit_per_s / 8,
                "cards": ", ".join(f"{name} {rate or '–'}" for name, rate in cards[index]) or "–",
                "clock_ahead_us": clock.get("ahead_us", float("nan")),
                "clock_error_us": clock.get("round_trip_us", float("nan")) / 2,
            }
        )
    names = [{gpu.name for gpu in node.gpus} for node in run.nodes]
    gpu_models = [next(iter(each)) if len(each) == 1 else None for each in names]
    return of_run(pd.DataFrame(rows), run, cards=cards, gpu_models=gpu_models)
