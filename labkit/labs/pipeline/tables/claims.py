"""The published figures beside what each mode allows and what our modes reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.labs.pipeline.plan import MODES
from labkit.labs.pipeline.tables.throughput import memory, throughput
from labkit.labs.pipeline.theory.schedules import layers_of, named
from labkit.labs.pipeline.theory.simulator import speedup_limit, split_limit
from labkit.provenance import fact, of_source, sources

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SLACK = 1.02  # a claim may exceed a limit by 2 %: equal stages are never quite equal
_NEAR = 0.1
_LAYERS = 12  # of BERT-base, which the reports split


def claims(gpus: pd.DataFrame, splits: pd.DataFrame, gpus_run: Run, splits_run: Run) -> pd.DataFrame:
    """Return, per published ratio: report, claim, printed, the limit in each mode, our recorded ratio in each, fits.

    Ratios of throughput: from the fewest to the most GPUs that a report ran, and of its uneven split to its even one.
    `fits` names the modes that can print it, or "none": for GPUs those whose limit it does not exceed by more than 2 %,
    and none where more of them are slower; for splits, where the limit is what equal layers give, those that it comes
    within 10 % of. A "2-2-2-2" stands for the even split of 12 layers over as many stages, for its figures are those of
    that run.
    """
    rows, recorded = [], throughput(gpus_run)
    for report, own in gpus.sort_values("gpus").groupby("report", sort=False):
        first, last = own.iloc[0], own.iloc[-1]
        before, after, m = int(first["gpus"]), int(last["gpus"]), int(first["chunks"])
        claim = {"report": report, "claim": f"from {before} to {after} GPUs"}
        claim["printed"] = last["samples_per_second"] / first["samples_per_second"]
        rates = recorded.set_index(["mode", "ranks"])["samples_per_s"]
        for mode in MODES:
            claim[f"{mode}_limit"] = speedup_limit(mode, before, after, m)
            claim[f"{mode}_recorded"] = rates.get((mode, after), float("nan")) / rates.get((mode, before), float("nan"))
        rows.append(claim)
    rates = throughput(splits_run).set_index(["mode", "split"])["samples_per_s"]
    for report, own in splits.groupby("report", sort=False):
        printed = own.drop_duplicates("split").set_index("split")["samples_per_second"]
        base, other = printed.index
        even = named([_LAYERS // len(layers_of(base))] * len(layers_of(base)))
        claim = {"report": report, "claim": f"{other} over {base}", "printed": printed[other] / printed[base]}
        for mode in MODES:
            claim[f"{mode}_limit"] = split_limit(mode, even, other, 4)
            claim[f"{mode}_recorded"] = rates.get((mode, other), float("nan")) / rates.get((mode, even), float("nan"))
        rows.append(claim)
    table = pd.DataFrame(rows)
    table["fits"] = [
        ", ".join(mode for mode in MODES if _fits(row["printed"], row[f"{mode}_limit"], " over " in row["claim"]))
        or "none"
        for _, row in table.iterrows()
    ]
    return of_source(table, f"{sources(gpus)} · {gpus_run.source}")


def _fits(printed: float, limit: float, split: bool) -> bool:
    return abs(printed / limit - 1) <= _NEAR if split else 1 <= printed <= _SLACK * limit


def absolute(gpus: pd.DataFrame, gpus_run: Run) -> pd.DataFrame:
    """Return, per report and number of GPUs, samples a second, seconds a step of 64, and over our streaming rate.

    `missing_seconds` is what a step took beyond our recorded streaming step on as many GPUs. `memory_over_streaming`
    and `memory_over_training`: the printed memory a GPU over that of our fullest rank in that mode (MB read as MiB).
    """
    recorded = throughput(gpus_run)
    rates = recorded[recorded["mode"] == "streaming"].set_index("ranks")["samples_per_s"]
    batch = fact(recorded, "batch")
    table = gpus[["report", "gpus", "samples_per_second"]].reset_index(drop=True)
    table["step_seconds"] = batch / table["samples_per_second"]
    ours = table["gpus"].map(rates)
    table["times_ours"] = table["samples_per_second"] / ours
    table["missing_seconds"] = table["step_seconds"] - batch / ours
    peaks = memory(gpus_run).groupby(["mode", "ranks"])["peak_mib"].max()
    for mode in ("streaming", "training"):
        kept = [peaks.get((mode, n), float("nan")) for n in table["gpus"]]
        table[f"memory_over_{mode}"] = gpus["memory_per_gpu_mb"].to_numpy() / kept
    return of_source(table, f"{sources(gpus)} · {gpus_run.source}")


def split_sums(splits: pd.DataFrame, gpus: pd.DataFrame) -> pd.DataFrame:
    """Return each published split, its layers, whether they are 12, and which figure of the GPU table it equals."""
    columns = ["report", "split", "samples_per_second"]
    table = splits.drop_duplicates(["report", "split"])[columns].reset_index(drop=True)
    table["layers"] = [sum(layers_of(split)) for split in table["split"]]
    table["is_bert_base"] = table["layers"] == _LAYERS
    known = {round(rate, 1): f"{n} GPUs" for rate, n in zip(gpus["samples_per_second"], gpus["gpus"], strict=True)}
    table["same_figure_as"] = [known.get(round(rate, 1), "") for rate in table["samples_per_second"]]
    return table
