"""Rows of lab 13 → tables: epochs and their parts, what is exchanged, what is learnt, and a report's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.provenance import fact, made_from, of_run
from labkit.theory.cifar10 import SAID
from labkit.theory.sizes import GB
from labkit.theory.traffic import ring_bytes
from lessons.scaling.theory import fit_serial

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["loader", "ranks", "gpu_batch"]
PARTS = ("input", "copy", "forward", "backward", "exposed", "optimizer", "rest")


def of_images(table: pd.DataFrame, run: Run) -> pd.DataFrame:
    """Return the table, marked as measured by the run on its kind of images."""
    return of_run(table, run, source=f"{run.source}, {SAID[run.plan.images]}", images=run.plan.images)


def epochs(run: Run) -> pd.DataFrame:
    """Return one row per setting (SETTING): seconds of an epoch with spread and count, a rank's steps, images_per_s.

    An epoch lasts as long as its slowest rank; the first one is a warm-up and left out. `images_per_s` counts all
    ranks' images; `spread_images_per_s` is half the interquartile range.
    """
    table = run.medians(SETTING, "seconds")
    rows = run.entries("epoch")
    done = rows[~rows["warm_up"].astype(bool)].groupby(SETTING)[["steps", "images"]].max().reset_index()
    table = table.merge(done, on=SETTING, how="left")
    table["images_per_s"] = table["ranks"] * table["images"] / table["seconds"]
    table["spread_images_per_s"] = table["images_per_s"] * table["spread_seconds"] / table["seconds"]
    return of_images(table.sort_values(SETTING, kind="stable", ignore_index=True), run)


def parts(run: Run) -> pd.DataFrame:
    """Return per setting (SETTING) what an epoch's seconds went into: a column for each of PARTS, and `seconds`.

    All are means over ranks and timed epochs. `rest_s` is what no part explains, `rest_share` that part of the epoch.
    """
    rows = run.entries("epoch")
    rows = rows[~rows["warm_up"].astype(bool)]
    named = [f"{part}_ms" for part in PARTS[:-1]]
    table = rows.groupby(SETTING)[["seconds", "steps", *named]].mean().reset_index()
    for part in PARTS[:-1]:
        table[f"{part}_s"] = table.pop(f"{part}_ms") / 1e3
    table["rest_s"] = table["seconds"] - sum(table[f"{part}_s"] for part in PARTS[:-1])
    table["rest_share"] = table["rest_s"].abs() / table["seconds"]
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
    both = pd.concat([strong, weak], ignore_index=True)
    alone = both[both["ranks"] == 1].set_index(["law", "fixed"])
    keys = pd.MultiIndex.from_frame(both[["law", "fixed"]])
    base, base_spread = (alone[name].reindex(keys).to_numpy() for name in ("images_per_s", "spread_images_per_s"))
    both["speedup"] = both["images_per_s"] / base
    relative = both["spread_images_per_s"] / both["images_per_s"] + base_spread / base
    both["spread_speedup"] = np.where(both["ranks"] == 1, 0.0, both["speedup"] * relative)
    for name in ("speedup", "spread_speedup"):
        both[name.replace("speedup", "efficiency")] = both[name] / both["ranks"]
    both = both.sort_values(["law", "fixed", "ranks"], kind="stable", ignore_index=True)
    columns = ["law", "fixed", "ranks", "gpu_batch", "steps", "seconds", "count", "images_per_s"]
    columns += ["speedup", "spread_speedup", "efficiency", "spread_efficiency"]
    return made_from(both[columns], table, loader=loader)


def laws(table: pd.DataFrame) -> pd.DataFrame:
    """Return the serial share fitted to each group of `scaling`: law, fixed, share, least and most.

    Amdahl's law is fitted to strong scaling, Gustafson's to weak scaling; `lessons.scaling.theory.fit_serial` says
    how, and what the interval is. No rows where only one number of GPUs was compared with one: every law fits it.
    """
    rows = []
    for (law, fixed), group in table.groupby(["law", "fixed"], sort=False):
        measured = group[group["speedup"].notna()]
        if measured["ranks"].nunique() > 2:
            serial = fit_serial(str(law), measured["ranks"], measured["speedup"], measured["spread_speedup"])
            rows.append((law, fixed, serial.share, serial.least, serial.most))
    return made_from(pd.DataFrame(rows, columns=["law", "fixed", "share", "least", "most"]), table)


BY = ["ranks", "gpu_batch"]
WAYS = ("steps", "trace", "hooks")
_TIMED = ("step", "gradients", "muted", "waited", "alone")


def exchange(run: Run) -> pd.DataFrame:
    """Return per number of ranks and batch per GPU what DDP's all-reduce costs, in ms, by three ways, and alone.

    `steps_ms`: gradients with all-reduce less gradients without. `trace_ms`: kernels of NCCL while nothing computes
    (only on all GPUs; else NaN). `hooks_ms`: what the stream waits from the last gradient to the backward's end. Each
    `…_share` is that over the step; `apart_points` is by how many points these shares differ at most. `alone_ms`: the
    same buckets, all-reduced when nothing else runs; `bus_gb_per_s` is theirs, as nccl-tests defines it. `hidden_share`
    is the part of `alone_ms` that the hooks do not see: below 0 where they see more.
    """
    rows = run.entries("sent").groupby(BY)[["calls", "sent_bytes"]].max()
    table = rows.astype(int)
    for name in _TIMED:
        table = table.join(_strategy_ms(run, "ddp", f"{name}_ms"))
    traced = run.entries("profile", [*BY, "exposed_ms"]).groupby(BY)["exposed_ms"].mean()
    table["steps_ms"] = table["gradients_ms"] - table["muted_ms"]
    table["spread_steps_ms"] = table["spread_gradients_ms"] + table["spread_muted_ms"]
    table["trace_ms"] = traced.reindex(table.index)
    table["hooks_ms"] = table["waited_ms"]
    for way in WAYS:
        table[f"{way}_share"] = table[f"{way}_ms"] / table["step_ms"]
    shares = table[[f"{way}_share" for way in WAYS]]
    table["apart_points"] = 100 * (shares.max(axis=1) - shares.min(axis=1))
    table = table.reset_index()
    several = table["ranks"] > 1
    moved = ring_bytes(table["sent_bytes"], table["ranks"])
    table["bus_gb_per_s"] = (moved / table["alone_ms"] * 1e3 / GB).where(several)
    table["hidden_share"] = (1 - table["hooks_ms"] / table["alone_ms"]).where(several)
    return of_images(table, run)


def _strategy_ms(run: Run, strategy: str, value: str) -> pd.DataFrame:
    """Return median and spread of a strategy's times by BY."""
    medians = run.medians(["strategy", *BY], value)
    return medians[medians["strategy"] == strategy].set_index(BY)[[value, f"spread_{value}"]]


def beside_line(table: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """Return `exchange` beside what lab 09's fitted lines promise for the same calls and bytes: line_ms, over_line.

    `lines` is lab 09's table of fits, perhaps of other GPUs: fact `line_source`. A line of another number of ranks
    promises nothing: NaN.
    """
    fitted = lines[(lines["collective"] == "all-reduce") & (lines["backend"] == "nccl")].set_index("ranks")
    fitted = fitted.iloc[:0] if fact(table, "small") else fitted  # processes on a CPU speak gloo
    alpha_us, beta = (fitted[name].reindex(table["ranks"]).to_numpy() for name in ("alpha_us", "beta_gb_per_s"))
    moved = ring_bytes(table["sent_bytes"], table["ranks"])
    result = table[["ranks", "gpu_batch", "calls", "sent_bytes", "alone_ms", "spread_alone_ms", "bus_gb_per_s"]].copy()
    result["line_ms"] = result["calls"] * alpha_us / 1e3 + moved / beta / GB * 1e3
    result["over_line"] = result["alone_ms"] / result["line_ms"]
    return made_from(result, table, lines, line_source=fact(lines, "source"))


def data_parallel(run: Run) -> pd.DataFrame:
    """Return per ranks and batch per GPU the step of DataParallel and of DDP in ms, and the first over the second.

    Empty where DataParallel did not run: it needs two GPUs.
    """
    dp, ddp = (_strategy_ms(run, name, "step_ms")["step_ms"].rename(f"{name}_ms") for name in ("dp", "ddp"))
    table = pd.concat([dp, ddp], axis=1, join="inner").reset_index()
    table["times"] = table["dp_ms"] / table["ddp_ms"]
    return of_images(table, run)


def messages(run: Run) -> pd.DataFrame:
    """Return what rank 0 called in each phase: phase, collective, calls, and the bytes of all of them."""
    rows = run.entries("message")
    table = rows[rows["rank"] == 0][["phase", "collective", "calls", "sent_bytes"]].reset_index(drop=True)
    return of_images(table.astype({"calls": int, "sent_bytes": int}), run)


def orders(run: Run) -> pd.DataFrame:
    """Return the first images of rank 0's epochs, with and without `set_epoch`: a row per epoch, a column per way."""
    rows = run.entries("order")
    rows = rows[rows["rank"] == 0].assign(epoch=lambda shown: shown["epoch"].astype(int))
    rows["numbers"] = [", ".join(map(str, numbers)) for numbers in rows["numbers"]]
    rows["way"] = rows["set_epoch"].astype(bool).map({True: "with set_epoch", False: "without set_epoch"})
    table = rows.pivot_table(index="epoch", columns="way", values="numbers", aggfunc="first").reset_index()
    return of_images(table.rename_axis(columns=None), run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return per variant of a Trial, on rank 0: what it trained on and validated with."""
    columns = ["variant", "ranks", "distinct", "repeated", "validated"]
    rows = run.entries("trial", columns)
    return of_images(rows[rows["rank"] == 0][columns].reset_index(drop=True), run)


MEASURED = ("test_percent", "train_percent", "train_loss")


def accuracy(run: Run) -> pd.DataFrame:
    """Return one row per training, after its last epoch: mean over the seeds and standard deviation of MEASURED.

    Columns: variant, ranks, gpu_batch, batch, rate, warm_up_epochs, steps (in all), seeds, percents (test_percent
    of each seed), seconds (of all epochs, the median over seeds), then mean and `std_…` of each. A standard deviation
    of one seed is NaN.
    """
    rows = run.entries("training")
    knobs = ["variant", "ranks", "gpu_batch", "batch", "rate", "warm_up_epochs"]
    seconds = rows.groupby(["variant", "seed"], sort=False)[["seconds", "steps"]].sum()
    last = rows[rows["epoch"] == rows["epoch"].max()]
    grouped = last.groupby(knobs, sort=False)
    table = grouped[list(MEASURED)].mean()
    for name in MEASURED:
        table[f"std_{name}"] = grouped[name].std()
    table["seeds"] = grouped.size()
    table["percents"] = grouped["test_percent"].agg(list)
    table = table.reset_index()
    by_variant = seconds.groupby("variant").median()
    table["seconds"] = table["variant"].map(by_variant["seconds"])
    table["steps"] = table["variant"].map(by_variant["steps"]).astype(int)
    return of_images(table, run)


def published_speedups(speedups: pd.DataFrame) -> pd.DataFrame:
    """Return resnet_speedup.csv with what its own seconds mean.

    `true_speedup`: one GPU's seconds over these, at the same batch per GPU. `efficiency`: that over the GPUs.
    """
    table = speedups.sort_values(["batch_per_gpu", "gpus"], ignore_index=True)
    alone = table[table["gpus"] == 1].set_index("batch_per_gpu")["epoch_seconds"]
    table["true_speedup"] = table["batch_per_gpu"].map(alone) / table["epoch_seconds"]
    table["efficiency"] = table["true_speedup"] / table["gpus"]
    return made_from(table, speedups, small=False)


def published_shares(parts: pd.DataFrame, speedups: pd.DataFrame) -> pd.DataFrame:
    """Return resnet_compute_communication.csv beside the epochs of the same settings.

    `unexplained_share`: the part of the epoch that is neither the printed computing nor the printed communication.
    """
    keys = ["batch_per_gpu", "gpus"]
    table = parts.merge(speedups[[*keys, "epoch_seconds"]], on=keys, how="left")
    explained = table["compute_seconds"] + table["communication_seconds"]
    table["unexplained_share"] = 1 - explained / table["epoch_seconds"]
    return made_from(table, parts, speedups, small=False)
