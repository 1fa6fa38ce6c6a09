"""Rows → the two ledgers: bytes held, and bytes sent, each beside its formula."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from labkit.tables.rows import entries
from labkit.theory.memory import ITEMS
from labkit.theory.traffic import traffic

MIB = 2**20
BY = ["strategy", "batch"]


def memory(run, by: list[str], predict: Callable) -> pd.DataFrame:
    """Give, a setting: MiB predicted for each item, their sum, the allocator's peak and reserved, what is unexplained.

    Measured is the fullest rank's. `unexplained_share` is of the peak. On a CPU there is no allocator to ask: the
    peak is NaN, and `counted_error` alone checks the prediction: the largest relative difference between predicted
    parameters, states and activations and those that were counted in the rank's tensors.
    """
    rows = entries(run, "memory").reindex(columns=[*dict.fromkeys([*run.rows, "peak_mib", "reserved_mib"])])
    parts = []
    for setting, group in rows.groupby(by, sort=False):
        fullest = (
            group.sort_values("peak_mib", kind="stable").iloc[-1]
            if group["peak_mib"].notna().any()
            else (group.iloc[0])
        )
        items = predict(run.plan, fullest)
        row = dict(zip(by, setting, strict=True)) | {item: items[item] / MIB for item in ITEMS}
        row["predicted"] = sum(items.values()) / MIB
        row |= {"peak": fullest["peak_mib"], "reserved": fullest["reserved_mib"]}
        row["counted_error"] = max(
            abs(fullest.get(f"{item}_mib", float("nan")) * MIB / items[item] - 1)
            for item in ("parameters", "optimizer", "activations")
            if items[item]
        )
        parts.append(row)
    columns = [*by, *ITEMS, "predicted", "peak", "reserved", "counted_error"]
    table = pd.DataFrame(parts, columns=columns)
    table["unexplained"] = table["peak"] - table["predicted"]
    table["unexplained_share"] = table["unexplained"] / table["peak"]
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


def sent(run, by: list[str] = BY, model: Callable = lambda plan, row: plan.model, **knobs) -> pd.DataFrame:
    """Give, a setting and collective: calls and MiB a step by formula and as counted, and whether they are equal.

    `knobs` are what `traffic` takes besides strategy and ranks: a number, the column that holds it, or how to tell it
    from a row.
    """
    rows, parts = entries(run, "traffic"), []
    for setting, group in rows[rows["rank"] == 0].groupby(by, sort=False):
        one = group.iloc[0]
        more = {name: _knob(one, how) for name, how in knobs.items()}
        formula = {
            each.collective: each for each in traffic(model(run.plan, one), one["strategy"], one["ranks"], **more)
        }
        counted = group.set_index("collective")
        for name in dict.fromkeys([*formula, *counted.index]):
            due, was = formula.get(name), counted.loc[name] if name in counted.index else None
            calls, size = (due.calls, due.bytes) if due else (0, 0)
            n, b = (int(was["calls"]), int(was["sent_bytes"])) if was is not None else (0, 0)
            parts.append(
                dict(zip(by, setting, strict=True))
                | {
                    "collective": name,
                    "calls": calls,
                    "counted_calls": n,
                    "mib": size / MIB,
                    "counted_mib": b / MIB,
                    "equal": (calls, size) == (n, b),
                }
            )
    columns = [*by, "collective", "calls", "counted_calls", "mib", "counted_mib", "equal"]
    table = pd.DataFrame(parts, columns=columns)
    table.attrs.update(source=run.source, small=run.plan.size == "small", ranks=run.plan.gpus)
    return table


def _knob(row: pd.Series, how) -> int:
    if callable(how):
        return how(row)
    return int(row[how]) if isinstance(how, str) else how
