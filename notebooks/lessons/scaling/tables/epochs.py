"""Rows of epochs → seconds and rates, what an epoch is made of, and how both scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labkit.node.limits import against_limit, spec
from labkit.provenance import like, of_source
from labkit.tables.rates import PEAK
from labkit.tables.rates import ladder as _ladder
from labkit.tables.rows import entries
from labkit.theory.images import SAID
from lessons.scaling.theory import fit_serial, training_flop

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["loader", "ranks", "gpu_batch"]
PARTS = ("input", "copy", "forward", "backward", "exposed", "optimizer", "rest")
LAWS = {"strong": "amdahl", "weak": "gustafson"}


def of_images(table: pd.DataFrame, run: Run, **facts: Any) -> pd.DataFrame:
    """Return the table, marked as measured by the run on its kind of images, with further facts."""
    source, images = f"{run.source}, {SAID[run.plan.images]}", run.plan.images
    return of_source(table, source, small=run.plan.size == "small", ranks=run.plan.gpus, images=images, **facts)


def epochs(run: Run) -> pd.DataFrame:
    """Return one row per setting (SETTING): seconds of an epoch with spread and count, a rank's steps, images_per_s.

    An epoch lasts as long as its slowest rank; the first one is a warm-up and left out. `images_per_s` counts all
    ranks' images; `spread_images_per_s` is half the interquartile range.
    """
    table = run.medians(SETTING, "seconds")
    rows = entries(run, "epoch")
    done = rows[~rows["warm_up"].astype(bool)].groupby(SETTING)[["steps", "images"]].max().reset_index()
    table = table.merge(done, on=SETTING, how="left")
    table["images_per_s"] = table["ranks"] * table["images"] / table["seconds"]
    table["spread_images_per_s"] = table["images_per_s"] * table["spread_seconds"] / table["seconds"]
    return of_images(table.sort_values(SETTING, kind="stable", ignore_index=True), run)


def parts(run: Run, exchanged: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return per setting (SETTING) what an epoch's seconds went into: a column for each of PARTS, and `seconds`.

    All are means over ranks and timed epochs. `rest_s` is what no part explains, `rest_share` that part of the epoch.
    `hidden_s` is the all-reduce behind the backward, from `exchange` of the same node; NaN where it was not measured.
    """
    rows = entries(run, "epoch")
    rows = rows[~rows["warm_up"].astype(bool)]
    named = [f"{part}_ms" for part in PARTS[:-1]]
    table = rows.groupby(SETTING)[["seconds", "steps", *named]].mean().reset_index()
    for part in PARTS[:-1]:
        table[f"{part}_s"] = table.pop(f"{part}_ms") / 1e3
    table["rest_s"] = table["seconds"] - sum(table[f"{part}_s"] for part in PARTS[:-1])
    table["rest_share"] = table["rest_s"].abs() / table["seconds"]
    table["hidden_s"] = float("nan")
    if exchanged is not None:
        own = exchanged.set_index(["ranks", "gpu_batch"])
        keys = pd.MultiIndex.from_frame(table[["ranks", "gpu_batch"]])
        table["hidden_s"] = table["steps"] * (own["hidden_share"] * own["alone_ms"]).reindex(keys).to_numpy() / 1e3
    return of_images(table, run)


def scaling(run: Run, loader: str = "device") -> pd.DataFrame:
    """Return speed-up and efficiency over one GPU by law, batch and ranks, with half-spreads.

    "strong": the batch over all GPUs stays (`fixed` names it), each GPU's share shrinks. "weak": each GPU's batch stays
    and the work per step grows. Speed-up is the ratio of images per second; efficiency is speed-up over ranks.
    """
    table = epochs(run)
    table = table[table["loader"] == loader]
    largest = run.plan.batches[-1]
    strong = table[table["gpu_batch"] == largest // table["ranks"]].assign(law="strong", fixed=largest)
    weak = table[table["gpu_batch"].isin(run.plan.batches)].assign(law="weak")
    weak["fixed"] = weak["gpu_batch"]
    found = pd.concat([strong, weak], ignore_index=True)
    one = found[found["ranks"] == 1].set_index(["law", "fixed"])
    keys = pd.MultiIndex.from_frame(found[["law", "fixed"]])
    base, base_spread = (one[name].reindex(keys).to_numpy() for name in ("images_per_s", "spread_images_per_s"))
    found["speedup"] = found["images_per_s"] / base
    relative = found["spread_images_per_s"] / found["images_per_s"] + base_spread / base
    found["spread_speedup"] = np.where(found["ranks"] == 1, 0.0, found["speedup"] * relative)
    for name in ("speedup", "spread_speedup"):
        found[name.replace("speedup", "efficiency")] = found[name] / found["ranks"]
    found = found.sort_values(["law", "fixed", "ranks"], kind="stable", ignore_index=True)
    columns = ["law", "fixed", "ranks", "gpu_batch", "steps", "seconds", "count", "images_per_s"]
    columns += ["speedup", "spread_speedup", "efficiency", "spread_efficiency"]
    return like(found[columns], table, loader=loader)


def laws(table: pd.DataFrame) -> pd.DataFrame:
    """Return the serial share fitted to each group of `scaling`: law, fixed, share, least and most.

    Amdahl's law is fitted to strong scaling, Gustafson's to weak scaling; `lessons.scaling.theory.fit_serial` says
    how, and what the interval is. No rows where nothing ran on two GPUs.
    """
    rows = []
    for (law, fixed), group in table.groupby(["law", "fixed"], sort=False):
        known = group[group["speedup"].notna()]
        if known["ranks"].max() > 1:
            found = fit_serial(LAWS[str(law)], known["ranks"], known["speedup"], known["spread_speedup"])
            rows.append((law, fixed, found.share, found.least, found.most))
    return like(pd.DataFrame(rows, columns=["law", "fixed", "share", "least", "most"]), table)


def ladder(run: Run) -> pd.DataFrame:
    """Return per rung: its knob, step_ms, images_per_s with spread, times the rung before and the first, and its share.

    `roof_share` is the network's FLOP per second over the datasheet's rate of the rung's precision; NaN where no
    datasheet is known.
    """
    table = _ladder(run, unit="images")
    precision = entries(run, "step").drop_duplicates("knob").set_index("knob")["precision"]
    known = spec(run.node.gpus[0].name) if run.plan.device == "cuda" else None
    peaks = [known.tflops(PEAK[precision[knob]]) if known else None for knob in table["knob"]]
    table["peak_tflops"] = pd.Series(peaks, dtype=float)
    table["tflops"] = table["images_per_s"] * training_flop(run.plan.width, run.plan.blocks) / 1e12
    table = against_limit(table, "tflops", "peak_tflops").rename(columns={"share_of_limit": "roof_share"})
    return of_images(table, run, unit="images")
