"""Rows → samples a second by strategy, with spread, and how far each is from DDP."""

from __future__ import annotations

import pandas as pd

SETTING = ["strategy", "ranks", "batch", "precision", "fused", "compiled"]


def throughput(run) -> pd.DataFrame:
    """Give one row a setting: its knobs, step_ms (median), spread, count, status, samples_per_s, its spread, seed_std.

    `seed_std` is the standard deviation over the seeds' medians, as reports print it; a step lasts as long as its
    slowest rank. "single" exchanges nothing: its ranks train side by side, `batch` samples together. `efficiency` is
    the rate over that of "single" at the same setting.
    """
    table = rates(run, SETTING)
    alone = table[table["strategy"] == "single"].set_index(["batch", "precision"])["samples_per_s"]
    keys = zip(table["batch"], table["precision"], strict=True)
    table["efficiency"] = table["samples_per_s"] / [alone.get(key, float("nan")) for key in keys]
    return table


def rates(run, by: list[str], *, per_sample: int = 1, unit: str = "samples") -> pd.DataFrame:
    """Give step_ms by the columns `by`, and from it `<unit>_per_s`: batch × per_sample over the step, with its spread.

    A setting that did not fit has the status that says so, and no rate.
    """
    table = run.medians(by, "step_ms")
    rate = f"{unit}_per_s"
    table[rate] = 1e3 * per_sample * table["batch"] / table["step_ms"]
    table[f"spread_{rate}"] = table[rate] * table["spread_step_ms"] / table["step_ms"]
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, "step_ms", "iteration"])])
    rows = rows[~rows["warm_up"].astype(bool) & rows["step_ms"].notna()]
    steps = rows.groupby([*by, "seed", "iteration"], sort=False, dropna=False)["step_ms"].max().reset_index()
    steps[rate] = 1e3 * per_sample * steps["batch"] / steps["step_ms"]
    seeds = steps.groupby([*by, "seed"], sort=False, dropna=False)[rate].median()
    spread = seeds.groupby(by, sort=False, dropna=False).std().rename("seed_std").reset_index()
    table = table.merge(spread, on=by, how="left")
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


def differences(table: pd.DataFrame, to: str = "ddp", by: tuple[str, ...] = ("batch",)) -> pd.DataFrame:
    """Give each strategy's rate over that of `to` less one, in percent, and the half-width of its spread.

    `resolved` says whether the two medians differ by more than their half-spreads (half the interquartile range of
    all steps of all seeds) together.
    """
    parts = []
    for _, rows in table.groupby(list(by), sort=False):
        rows = rows.set_index("strategy")
        if to not in rows.index or ("single" in rows.index and len(rows) < 3):
            continue
        base = rows.loc[to]
        others = rows.drop([to, "single"], errors="ignore").reset_index()
        ratio = others["samples_per_s"] / base["samples_per_s"]
        spread = others["spread_samples_per_s"] / base["samples_per_s"] + base["spread_samples_per_s"] / base[
            "samples_per_s"]  # fmt: skip
        parts.append(others[["strategy", *by, "count"]].assign(
            percent=100 * (ratio - 1), spread_percent=100 * spread, resolved=(ratio - 1).abs() > spread))  # fmt: skip
    columns = ["strategy", *by, "count", "percent", "spread_percent", "resolved"]
    result = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    result.attrs = dict(table.attrs) | {"to": to}
    return result


def ladder(run, *, per_sample: int = 1, unit: str = "samples") -> pd.DataFrame:
    """Give, a rung: its knob, step_ms, rate with spread, times the rung before, times the first, and its status.

    A rung that failed has no rate; the next one is held against the last that has.
    """
    table = rates(run, ["knob", "batch"], per_sample=per_sample, unit=unit)
    rate = table[f"{unit}_per_s"]
    table["times_previous"], table["times_first"] = rate / rate.ffill().shift(), rate / rate.bfill().iloc[0]
    table.attrs["unit"] = unit
    return table
