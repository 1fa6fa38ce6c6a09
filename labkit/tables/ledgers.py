"""Rows → the two ledgers, bytes held and sent, beside their formulas; and whether a strategy trains as one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import of_run
from labkit.theory.memory import ITEMS
from labkit.theory.sizes import MIB
from labkit.theory.traffic import traffic

if TYPE_CHECKING:
    from labkit.engine.run import Run

BY = ["strategy", "batch"]


def memory(run: Run, by: list[str], predict: Callable) -> pd.DataFrame:
    """Return per setting: MiB predicted for each item, their sum, the allocator's peak and reserved, the unexplained.

    Measured is the fullest rank's. `unexplained_share` is of the peak. On a CPU there is no allocator to ask: the
    peak is NaN, and `counted_error` alone checks the prediction: the largest relative difference between predicted
    parameters, states and activations and those that were counted in the rank's tensors.
    """
    rows = run.entries("memory", ["peak_mib", "reserved_mib"])
    parts = []
    for setting, group in rows.groupby(by, sort=False):
        measured = group["peak_mib"].notna().any()
        fullest = group.sort_values("peak_mib", kind="stable").iloc[-1] if measured else group.iloc[0]
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
    table = with_unexplained(pd.DataFrame(parts, columns=columns))
    return of_run(table, run)


def with_unexplained(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with two more columns: what of the peak is not predicted, and its share of the peak."""
    unexplained = table["peak"] - table["predicted"]
    return table.assign(unexplained=unexplained, unexplained_share=unexplained / table["peak"])


def sent(run: Run, by: list[str] = BY, model: Callable = lambda plan, row: plan.model, **knobs: Any) -> pd.DataFrame:
    """Return per setting and collective: calls and MiB per step by formula and as counted, and whether they are equal.

    `knobs` are what `traffic` takes besides strategy and ranks: a number, the column that holds it, or a function that
    returns it for a row.
    """
    rows, parts = run.entries("traffic"), []
    for setting, group in rows[rows["rank"] == 0].groupby(by, sort=False):
        first = group.iloc[0]
        more = {name: _knob(first, source) for name, source in knobs.items()}
        formula = {
            each.collective: each for each in traffic(model(run.plan, first), first["strategy"], first["ranks"], **more)
        }
        counted = group.set_index("collective")
        for name in dict.fromkeys([*formula, *counted.index]):
            due, was = formula.get(name), counted.loc[name] if name in counted.index else None
            calls, size = (due.calls, due.bytes) if due else (0, 0)
            counted_calls, sent_bytes = (int(was["calls"]), int(was["sent_bytes"])) if was is not None else (0, 0)
            parts.append(
                dict(zip(by, setting, strict=True))
                | {
                    "collective": name,
                    "calls": calls,
                    "counted_calls": counted_calls,
                    "mib": size / MIB,
                    "counted_mib": sent_bytes / MIB,
                    "equal": (calls, size) == (counted_calls, sent_bytes),
                }
            )
    columns = [*by, "collective", "calls", "counted_calls", "mib", "counted_mib", "equal"]
    table = pd.DataFrame(parts, columns=columns)
    return of_run(table, run)


def _knob(row: pd.Series, source: int | str | Callable[[pd.Series], int]) -> int:
    if callable(source):
        return source(row)
    return int(row[source]) if isinstance(source, str) else source


ERRORS = ["loss_error", "update_error"]
ROUNDING = 1e-3  # a thousand times what float32 rounding gives over a few steps


def equality(run: Run) -> pd.DataFrame:
    """Return per strategy: the largest errors over the ranks, and whether it trained as one process does.

    `loss_error` and `update_error` are relative; both are less than ROUNDING where a strategy is `equal`. A run without
    the variant "right" has no rows.
    """
    rows = run.entries("trial", ["variant", "strategy", *ERRORS])
    table = rows[rows["variant"] == "right"].groupby("strategy", sort=False)[ERRORS].max().reset_index()
    table["equal"] = (table[ERRORS] < ROUNDING).all(axis=1)
    return of_run(table, run)
