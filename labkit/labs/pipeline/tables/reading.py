"""The published figures beside what each mode allows and what our modes reached; and splits beside their prediction."""

from __future__ import annotations

import pandas as pd

from labkit.labs.pipeline.plan import MODES
from labkit.labs.pipeline.tables.throughput import memory, predicted_ms, speedup_limit, split_limit, throughput
from labkit.labs.pipeline.tables.timeline import measured_steps, times_of
from labkit.labs.pipeline.theory.schedules import layers_of, named, order_of
from labkit.labs.pipeline.theory.simulator import Times, simulate, step_time, streaming_step

SLACK = 1.02  # a claim may exceed a limit by 2 %: equal stages are never quite equal
NEAR = 0.1
LAYERS = 12  # of BERT-base, which the reports split


def claims(gpus: pd.DataFrame, splits: pd.DataFrame, gpus_run, splits_run) -> pd.DataFrame:
    """Give, a published ratio: report, claim, printed, the limit in each mode, our recorded ratio in each, fits.

    Ratios of throughput: from the fewest to the most GPUs that a report ran, and of its uneven split to its even one.
    `fits` names the modes that can print it, or "none": for GPUs those whose limit it does not exceed by more than 2 %,
    and none where more of them are slower; for splits, where the limit is what equal layers give, those that it comes
    within 10 % of. A "2-2-2-2" stands for
    the even split of 12 layers over as many stages, for its figures are those of that run.
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
        even = named([LAYERS // len(layers_of(base))] * len(layers_of(base)))
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
    table.attrs["source"] = f"{gpus.attrs['source']} · {gpus_run.source}"
    return table


def _fits(printed: float, limit: float, split: bool) -> bool:
    return abs(printed / limit - 1) <= NEAR if split else 1 <= printed <= SLACK * limit


def absolute(gpus: pd.DataFrame, gpus_run) -> pd.DataFrame:
    """Give, a report and number of GPUs: samples a second, seconds a step of 64, and over our streaming rate.

    `missing_seconds` is what a step took beyond our recorded streaming step on as many GPUs. `memory_over_streaming`
    and `memory_over_training`: the printed memory a GPU over that of our fullest rank in that mode (MB read as MiB).
    """
    recorded = throughput(gpus_run)
    rates = recorded[recorded["mode"] == "streaming"].set_index("ranks")["samples_per_s"]
    batch = recorded.attrs["batch"]
    table = gpus[["report", "gpus", "samples_per_second"]].reset_index(drop=True)
    table["step_seconds"] = batch / table["samples_per_second"]
    ours = table["gpus"].map(rates)
    table["times_ours"] = table["samples_per_second"] / ours
    table["missing_seconds"] = table["step_seconds"] - batch / ours
    peaks = memory(gpus_run).groupby(["mode", "ranks"])["peak_mib"].max()
    for mode in ("streaming", "training"):
        kept = [peaks.get((mode, n), float("nan")) for n in table["gpus"]]
        table[f"memory_over_{mode}"] = gpus["memory_per_gpu_mb"].to_numpy() / kept
    table.attrs["source"] = f"{gpus.attrs['source']} · {gpus_run.source}"
    return table


def split_sums(splits: pd.DataFrame, gpus: pd.DataFrame) -> pd.DataFrame:
    """Give, a published split: its layers added up, whether that is 12, and which figure of the GPU table it equals."""
    table = splits.drop_duplicates(["report", "split"])[["report", "split", "samples_per_second"]].reset_index(
        drop=True
    )
    table["layers"] = [sum(layers_of(split)) for split in table["split"]]
    table["is_bert_base"] = table["layers"] == LAYERS
    known = {round(rate, 1): f"{n} GPUs" for rate, n in zip(gpus["samples_per_second"], gpus["gpus"], strict=True)}
    table["same_figure_as"] = [known.get(round(rate, 1), "") for rate in table["samples_per_second"]]
    return table


def split_forecast(run, mode: str = "training") -> pd.DataFrame:
    """Give each split's measured step_ms, and the forecast_ms that the even split's own spans allow.

    Layer, embedding and head times are read from the traced stages of the most even split; the stages of each other
    split are added up from them and simulated. `ratio` and `forecast_ratio` are over the even split's step; `error`
    compares the two.
    """
    table = throughput(run)
    table = table[table["mode"] == mode].reset_index(drop=True)
    even = min(table["split"], key=lambda split: max(layers_of(split)))
    times = times_of(measured_steps(run, split=even, mode=mode))
    forecasts = []
    for _, row in table.iterrows():
        other = recut(times, layers_of(even), layers_of(row["split"]))
        if mode == "streaming":
            forecasts.append(streaming_step(len(layers_of(row["split"])), row["micro_batches"], other))
            continue
        order = order_of(row["schedule"], row["ranks"], row["micro_batches"])
        forecasts.append(step_time(simulate(order, other)))
    base = list(table["split"]).index(even)
    result = table[["split", "mode", "step_ms", "spread_step_ms", "samples_per_s"]].assign(forecast_ms=forecasts)
    result["ratio"] = result["step_ms"] / result["step_ms"].iloc[base]
    result["forecast_ratio"] = result["forecast_ms"] / result["forecast_ms"].iloc[base]
    result["error"] = result["forecast_ratio"] / result["ratio"] - 1
    result.attrs.update(source=run.source, small=run.plan.size == "small", even=even)
    return result


def recut(times: Times, sizes: list[int], other: list[int]) -> Times:
    """Give the times of a split into `other` from those of one into `sizes`: by layer, the ends' extra work kept."""

    def again(stages) -> list[float]:
        inner = list(zip(stages, sizes, strict=True))
        layer = (
            sum(t for t, _ in inner[1:-1]) / sum(n for _, n in inner[1:-1])
            if len(sizes) > 2
            else min(t / n for t, n in inner)
        )
        cut = [layer * size for size in other]
        cut[0] += stages[0] - layer * sizes[0]
        cut[-1] += stages[-1] - layer * sizes[-1]
        return cut

    return Times(again(times.forward), again(times.backward), transfer=times.transfer, update=times.update)


def isolated(run, parts_table: pd.DataFrame) -> pd.DataFrame:
    """Give, a GPipe or forward-only setting: measured step_ms and predicted_ms from parts that were timed alone."""
    table = throughput(run)
    table = table[(table["schedule"] == "gpipe") & table["micro_batches"].isin(parts_table["micro_batches"])]
    predicted = [
        predicted_ms(parts_table, row["split"], row["micro_batches"], row["mode"]) for _, row in table.iterrows()
    ]
    result = table[["split", "mode", "micro_batches", "step_ms", "spread_step_ms"]].assign(predicted_ms=predicted)
    result["residual"] = result["predicted_ms"] / result["step_ms"] - 1
    result.attrs = dict(table.attrs)
    return result.reset_index(drop=True)
