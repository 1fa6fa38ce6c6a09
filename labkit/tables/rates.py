"""Rows → samples or tokens per second, with spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from labkit.node.limits import against_limit
from labkit.theory.gpt import flop_per_token, gpt

if TYPE_CHECKING:
    from labkit.engine.run import Run

SETTING = ["load", "strategy", "ranks", "batch", "micro_batch"]
PEAK = {"float32": "fp32", "tf32": "tf32", "autocast": "bf16", "bfloat16": "bf16", "float8": "fp8"}


def rates(run: Run, by: list[str], *, per_sample: int = 1, unit: str = "samples") -> pd.DataFrame:
    """Return step_ms by the columns `by`, and `<unit>_per_s`, batch × per_sample over the step, with its spread.

    A setting that did not fit has the status that says so, and no rate.
    """
    table = run.medians(by, "step_ms")
    rate = f"{unit}_per_s"
    table[rate] = 1e3 * per_sample * table["batch"] / table["step_ms"]
    table[f"spread_{rate}"] = table[rate] * table["spread_step_ms"] / table["step_ms"]
    return table


def with_efficiency(table: pd.DataFrame, rate: str, by: list[str], *, each: bool = False) -> pd.DataFrame:
    """Add `efficiency`, the rate over that of "single" at the same `by`, and `spread_efficiency`, of both rates.

    `each`: the rate per rank; else that of all ranks, where those of "single" train side by side.
    """
    alone = table[table["strategy"] == "single"].set_index(by)
    keys = pd.MultiIndex.from_frame(table[by]) if len(by) > 1 else table[by[0]]
    base, base_spread = (alone[name].reindex(keys).to_numpy() for name in (rate, f"spread_{rate}"))
    table["efficiency"] = table[rate] / (table["ranks"] if each else 1) / base
    table["spread_efficiency"] = table["efficiency"] * (table[f"spread_{rate}"] / table[rate] + base_spread / base)
    return table


def ladder(run: Run, *, per_sample: int = 1, unit: str = "samples") -> pd.DataFrame:
    """Return per rung: its knob, step_ms, rate with spread, times the rung before, times the first, and its status.

    A rung that failed has no rate; the next one is compared with the last that has one.
    """
    table = rates(run, ["knob", "batch"], per_sample=per_sample, unit=unit)
    rate = table[f"{unit}_per_s"]
    table["times_previous"], table["times_first"] = rate / rate.ffill().shift(), rate / rate.bfill().iloc[0]
    return table


def strategies(run: Run) -> pd.DataFrame:
    """Return per setting: tokens_per_s with spread, efficiency with spread, mfu, and the peak's verdict.

    `efficiency` is tokens per second and GPU over those of "single" under the same load. `mfu`: see `utilised`.
    """
    plan = run.plan
    table = rates(run, SETTING, per_sample=plan.sequence, unit="tokens")
    return utilised(with_efficiency(table, "tokens_per_s", ["load"], each=True), run, plan.precision)


def utilised(table: pd.DataFrame, run: Run, precision: str | pd.Series) -> pd.DataFrame:
    """Add mfu: the model's FLOP per second and GPU over the datasheet's dense rate, and the verdict (`against_limit`).

    FLOP per token: 6 per parameter + 12·layers·hidden·sequence; padding of the vocabulary is not credited.
    """
    plan = run.plan
    flop = flop_per_token(
        gpt(plan.layers, plan.hidden, plan.words, plan.sequence).parameters, plan.layers, plan.hidden, plan.sequence
    )
    limits = run.datasheet
    peaks = precision if isinstance(precision, pd.Series) else pd.Series([precision] * len(table), table.index)
    table["peak_tflops"] = [limits.tflops(PEAK[name]) if limits else None for name in peaks]
    table["peak_tflops"] = table["peak_tflops"].astype(float)
    table["tflops_per_gpu"] = table["tokens_per_s"] * flop / table.get("ranks", 1) / 1e12
    checked = against_limit(table, "tflops_per_gpu", "peak_tflops")
    return checked.rename(columns={"share_of_limit": "mfu"})


def statuses(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    """Return, for each setting of the columns `by`, the first status of its rows that is not "ok", or "ok"."""
    failed = rows.assign(status=rows["status"].where(rows["status"] != "ok"))
    return failed.groupby(by, sort=False, dropna=False)["status"].first().fillna("ok")
