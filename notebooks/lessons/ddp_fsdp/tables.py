"""Rows of lab 04 → tables: rates, both ledgers, trials, ZeRO beside FSDP."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.plans import STRATEGIES
from labkit.provenance import made_from, of_run, of_source, sources
from labkit.tables import ledgers
from labkit.tables.ledgers import BY, ERRORS, ROUNDING
from labkit.tables.ledgers import equality as equality
from labkit.tables.ledgers import sent as sent
from labkit.tables.published import published, report_names
from labkit.tables.rates import ladder as ladder
from labkit.tables.rates import rates, with_efficiency
from labkit.theory.bert import bert_activations
from labkit.theory.memory import ledger
from labkit.theory.shapes import bert
from labkit.theory.sizes import MIB
from labkit.theory.traffic import Sent, through_a_link, traffic
from lessons.ddp_fsdp.plan import BY_HAND, YOURS

if TYPE_CHECKING:
    from labkit.engine.run import Run
    from lessons.ddp_fsdp.plan import BertPlan

_SEEDS, _RESOLVED = 3, 2.0  # of the reports; standard errors (Student's t with two times three seeds asks for 2.8)
_LOGITS = 4  # logits, their logarithm, and a gradient of each
MODEL = bert(hidden=768, layers=12, vocabulary=30522, positions=512)
REPORTED_GPUS = 4
_SETTING = ["strategy", "ranks", "batch", "precision", "fused", "compiled"]


def throughput(run: Run) -> pd.DataFrame:
    """Return one row per setting: its knobs, step_ms (median), spread, count, status, samples_per_s, spread.

    A step lasts as long as its slowest rank. "single" exchanges nothing: its ranks train side by side, `batch` samples
    together. `efficiency` is the rate over that of "single" at the same setting; `spread_efficiency` is the half-spread
    of both together.
    """
    return with_efficiency(rates(run, _SETTING), "samples_per_s", ["batch", "precision"])


def compared(run: Run) -> pd.DataFrame:
    """Return `throughput`, and of each strategy but "single" how far its rate is from DDP's.

    percent, spread_percent, and resolved: whether the difference is more than both spreads together.
    """
    table = throughput(run)
    apart = _beside_ddp(table).astype({"batch": table["batch"].dtype})
    joined = table.merge(apart, on=["strategy", "batch"], how="left")
    return of_run(joined, run, batches=run.plan.batches)


def _beside_ddp(table: pd.DataFrame) -> pd.DataFrame:
    """Return each strategy's rate over that of DDP less one, in percent, and the half-width of its spread.

    `resolved` says whether the two medians differ by more than their half-spreads (half the interquartile range of
    all steps of all seeds) together.
    """
    parts = []
    for _, group in table.groupby("batch", sort=False):
        rows = group.set_index("strategy")
        if "ddp" not in rows.index or ("single" in rows.index and len(rows) < 3):
            continue
        base = rows.loc["ddp"]
        others = rows.drop(["ddp", "single"], errors="ignore").reset_index()
        ratio = others["samples_per_s"] / base["samples_per_s"]
        spread = (others["spread_samples_per_s"] + base["spread_samples_per_s"]) / base["samples_per_s"]
        parts.append(
            others[["strategy", "batch"]].assign(
                percent=100 * (ratio - 1), spread_percent=100 * spread, resolved=(ratio - 1).abs() > spread
            )
        )
    columns = ["strategy", "batch", "percent", "spread_percent", "resolved"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def forecast(plan: BertPlan, row: pd.Series | dict) -> dict[str, int]:
    """Return the bytes that a rank of a lab 04 point should hold at the fullest moment (float32 only), by item."""
    share = row["batch"] // row["ranks"]
    kept = bert_activations(plan.layers, plan.hidden, plan.heads, share, plan.sequence)
    return ledger(plan.model, row["strategy"], row["ranks"], kept)


def memory(run: Run) -> pd.DataFrame:
    """Return the memory ledger of BERT, a row per strategy and batch (labkit.tables.ledgers.memory has the columns)."""
    return ledgers.memory(run, BY, forecast)


def holdings(ranks: int = 4, batch: int = 16) -> pd.DataFrame:
    """Return by theory what a rank of BERT-base holds with `batch` samples of 512 tokens, a row per strategy.

    Columns: strategy, MiB by item, predicted (their sum), link_mib (through its link per step).
    """
    kept = bert_activations(12, 768, 12, batch, 512)
    rows = []
    for strategy in STRATEGIES:
        items = {item: held / MIB for item, held in ledger(MODEL, strategy, ranks, kept).items()}
        link = through_a_link(traffic(MODEL, strategy, ranks), ranks) / MIB
        rows.append({"strategy": strategy} | items | {"predicted": sum(items.values()), "link_mib": link})
    source = f"theory: BERT-base, {ranks} ranks, {batch} samples of 512 tokens per rank, float32, AdamW"
    return of_source(pd.DataFrame(rows), source, ranks=ranks)


def trained(run: Run) -> pd.DataFrame:
    """Return how far each training of a Trial without a bug is from one process: variant, strategy, two errors, equal.

    `loss_error` and `update_error` are relative, the largest over the ranks; both are less than ROUNDING in an equal
    one. The variant is "right" for torch's own strategies.
    """
    by = ["variant", "strategy"]
    rows = run.entries("trial", [*by, *ERRORS])
    rows = rows[rows["variant"].isin(["right", *BY_HAND, YOURS])]
    table = rows.groupby(by, sort=False)[ERRORS].max().reset_index()
    return of_run(table.assign(equal=(table[ERRORS] < ROUNDING).all(axis=1)), run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return per variant: distinct samples and repeated order (shares), update_ratio, update_error, and its error."""
    columns = ["variant", "ranks", "distinct", "repeated", "update_ratio", "update_error", "raised"]
    rows = run.entries("trial", columns)
    table = rows[rows["rank"] == 0][columns].reset_index(drop=True)
    table["raised"] = table["raised"].astype(object).fillna("")
    return of_run(table, run)


def zero(*runs: Run) -> pd.DataFrame:
    """Return per strategy of all runs, at their first batch: samples_per_s, spread, peak_mib (fullest rank), link_mib.

    `limits` are those of ZeRO-3: "default", or "zero"; "" for the others. `calls` are of collectives per step. Of runs
    of other plans, only the strategies that ZeRO is compared with are taken.
    """
    tables = [of_run(_zero_rows(run), run) for run in runs]
    return made_from(pd.concat(tables, ignore_index=True), *tables)


def _zero_rows(run: Run) -> pd.DataFrame:
    plan = run.plan
    table = throughput(run)
    table = table[(table["batch"] == plan.batches[0]) & ~table["strategy"].isin(["single", "fsdp_root"])]
    table = table[["strategy", "samples_per_s", "spread_samples_per_s", "count"]].reset_index(drop=True)
    table["limits"] = [plan.limits if strategy == "zero3" else "" for strategy in table["strategy"]]
    kept = run.rows_with(["peak_mib"])
    kept = kept[kept["batch"] == plan.batches[0]]
    held = kept.groupby("strategy")["peak_mib"].max()
    table["peak_mib"] = table["strategy"].map(held)
    rows = kept[(kept["entry"] == "traffic") & (kept["rank"] == 0)]
    sent = rows[["collective", "calls", "sent_bytes"]].itertuples(index=False)
    each = [through_a_link([Sent(*call)], plan.gpus) / MIB for call in sent]
    link = pd.Series(each, rows.index, dtype=float).groupby(rows["strategy"]).sum()
    table["link_mib"] = table["strategy"].map(link)
    table["calls"] = table["strategy"].map(rows.groupby("strategy")["calls"].sum())
    return table


def per_sample(run: Run) -> pd.DataFrame:
    """Return per attention and dropout: what a sample adds, in units of 10^6 bytes, and the rate at the larger batch.

    `formula_mb` is activations by formula; `peak_mb` the slope of the peak between the two batches (none on a CPU).
    """
    plan = run.plan
    by = ["attention", "dropout"]
    table = rates(run, [*by, "batch", "ranks"])
    held = run.entries("memory", [*by, "batch", "peak_mib"])
    peaks = held.groupby(["batch", *by])["peak_mib"].max() * MIB / 1e6
    most, least = plan.batches[0], plan.batches[-1]
    slope = (peaks[most] - peaks[least]) / ((most - least) / plan.gpus)
    table = table[table["batch"] == plan.batches[0]].reset_index(drop=True)
    size = (plan.layers, plan.hidden, plan.heads, 1, plan.sequence)
    table["formula_mb"] = [
        bert_activations(*size, attention=row.attention, dropout=row.dropout > 0) / 1e6 for row in table.itertuples()
    ]
    table["peak_mb"] = [slope[row.attention, row.dropout] for row in table.itertuples()]
    return of_run(table, run)


def printed_runs() -> pd.DataFrame:
    """Return one row per report, strategy and batch of the published table, with the report's name.

    `peak_bytes` is the fullest GPU's. The "MB" of one report are 2^20 bytes: its 10 438.31 are 10 945 447 595 bytes,
    which the other prints.
    """
    printed = published("ddp_fsdp")
    factor = printed["unit"].map({"MB": MIB, "bytes": 1})
    rows = printed.assign(peak_bytes=printed["peak"] * factor)
    first = dict.fromkeys(["samples_per_second", "samples_per_second_std", "step_seconds"], "first")
    by = ["report", "strategy", "global_batch"]
    table = rows.groupby(by, sort=False, as_index=False).agg({"peak_bytes": "max"} | first)
    return made_from(table.assign(name=table["report"].map(report_names())), printed)


def printed_per_sample() -> dict[str, float]:
    """Return what a sample adds to DDP's peak in each report, by its name, in units of 10^6 bytes.

    The slope of the peak over a report's batches, of which each GPU takes all (see the claims); for a single batch,
    shared by four GPUs, the peak without states of 16 bytes per parameter.
    """
    rows = printed_runs()
    sizes = {}
    for name, runs in rows[rows["strategy"] == "ddp"].groupby("name", sort=False):
        most, least = runs.loc[runs["global_batch"].idxmax()], runs.loc[runs["global_batch"].idxmin()]
        if len(runs) > 1:
            sizes[name] = (most["peak_bytes"] - least["peak_bytes"]) / (most["global_batch"] - least["global_batch"])
        else:
            sizes[name] = (most["peak_bytes"] - 16 * MODEL.parameters) / (most["global_batch"] / REPORTED_GPUS)
    return {name: size_bytes / 1e6 for name, size_bytes in sizes.items()}


def template_per_sample(peak_mb: float) -> float:
    """Return what a sample adds, in units of 10^6 bytes, to a peak with the masked-LM head of the course's template.

    `peak_mb` is what it adds without; the head adds four float32 tensors of a number per token and word.
    """
    return peak_mb + _LOGITS * 4 * 512 * 30522 / 1e6


def printed_differences() -> pd.DataFrame:
    """Return per report and batch: how FSDP's rate differs from DDP's, and whether the printed spreads resolve it.

    `difference` is a share of DDP's rate, `standard_error` that of the difference, from the standard deviations over
    three seeds; `resolved` where the difference is more than two of them. Seeds say nothing of other machines or days.
    A printed deviation is the population's, as in the course's template, so one seed less divides it.
    """
    rows = printed_runs()
    ddp, fsdp = (rows[rows["strategy"] == name] for name in ("ddp", "fsdp_full"))
    pairs = ddp.merge(fsdp, on=["report", "global_batch"], suffixes=("_ddp", "_fsdp"))
    base = pairs["samples_per_second_ddp"]
    stds = pairs[["samples_per_second_std_ddp", "samples_per_second_std_fsdp"]]
    pairs["name"] = pairs["name_ddp"]
    table = pairs[["report", "name", "global_batch"]].assign(
        difference=pairs["samples_per_second_fsdp"] / base - 1,
        standard_error=(stds**2).sum(axis=1) ** 0.5 / math.sqrt(_SEEDS - 1) / base,
    )
    table["standard_errors"] = table["difference"].abs() / table["standard_error"]
    table["resolved"] = table["standard_errors"] > _RESOLVED
    return of_source(table, sources(published("ddp_fsdp")))
