"""Rows of lab 16 → tables: cases, steps of the same batch, what is held, kept and sent, and the share of sending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node import limits
from labkit.provenance import of_run, of_source
from labkit.theory.sizes import MIB
from labkit.theory.traffic import Sent, through_a_link
from lessons.tensor_parallel.theory import HELD, STRATEGIES, held_elements, kept_bytes, matrices, traffic, width_to_pay

if TYPE_CHECKING:
    from labkit.engine.run import Run

_ROUNDING = 1e-5  # relative, of float32
_ERRORS = ["loss_error", "weight_error", "apart"]


def cases(run: Run) -> pd.DataFrame:
    """Return one row per case: the ranks' largest errors, the share of equal places of masks, whether it is right.

    Where numbers are dropped, one process cannot be compared: all ranks must have one loss and, where each has its own
    positions, masks of their own.
    """
    rows = run.entries("equality", [*_ERRORS, "same_mask"])
    table = rows.groupby("case", sort=False)[[*_ERRORS, "same_mask"]].max().reset_index()
    own = table["case"].str.contains("sequence")
    table["right"] = (table[_ERRORS].fillna(0).max(axis=1) <= _ROUNDING) & ((table["same_mask"] < 1) == own)
    return of_run(table, run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per variant: the ranks' largest errors, and the share of a mask's places that two ranks share.

    `same_mask` is NaN without dropout, the errors are NaN with it.
    """
    columns = ["first_error", "weight_error", "same_mask"]
    table = run.entries("equality", columns).groupby("variant", sort=False)[columns].max().reset_index()
    table["same_mask"] = table["same_mask"].where(table["first_error"].isna())
    return of_run(table, run)


def _timed(run: Run, by: list[str]) -> pd.DataFrame:
    gradients = run.medians(by, "gradients_ms")[[*by, "gradients_ms", "spread_gradients_ms"]]
    return run.medians(by, "step_ms").merge(gradients, "left", by)


def steps(run: Run) -> pd.DataFrame:
    """Return one row per strategy that trains: step_ms, tokens_per_s of all ranks, memory, and its ratio to torch's.

    All take the same samples. MiB: HELD as the rank's tensors hold them after backward (activations: after forward),
    their sum `held_mib`, and the allocator's `peak_mib` (NaN where it was not asked). `over_torch`: the step over that
    of torch's tensor parallelism, with the spread of both.
    """
    table, plan = _timed(run, ["strategy"]), run.plan
    table = table[~table["strategy"].str.contains("silent")].reset_index(drop=True)
    rows = run.entries("step", ["strategy", "warm_up", "peak_mib"])
    peaks = rows[~rows["warm_up"].astype(bool)].groupby("strategy")["peak_mib"].max()
    table["peak_mib"] = table["strategy"].map(peaks)
    held = run.entries("memory", [f"{item}_mib" for item in HELD]).drop_duplicates("strategy").set_index("strategy")
    for item in HELD:
        table[item] = table["strategy"].map(held[f"{item}_mib"])
    table["held_mib"] = table[[*HELD]].sum(axis=1)
    table["tokens_per_s"] = plan.gpus * plan.samples * plan.sequence / (table["step_ms"] / 1e3)
    torchs = table[table["strategy"] == "torch"]
    theirs, spread = (torchs[name].squeeze() if len(torchs) else float("nan") for name in ("step_ms", "spread_step_ms"))
    table["over_torch"] = table["step_ms"] / theirs
    table["spread_over_torch"] = (table["spread_step_ms"] + spread * table["over_torch"]) / theirs
    return of_run(table, run)


def ledgers(run: Run) -> pd.DataFrame:
    """Return one row per strategy of ours: MiB of weights, kept activations, calls and MiB of a step, beside formulas.

    `equal`: weights, calls and bytes are the formula's. That of activations is a GPU's: a CPU's kernels keep more.
    """
    plan, rows = run.plan, []
    held = run.entries("memory").drop_duplicates("strategy").set_index("strategy")
    sent = run.entries("traffic", ["strategy", "collective", "calls", "sent_bytes"])
    sent = sent[sent["rank"] == 0].drop_duplicates(["strategy", "collective"])
    for strategy in [each for each in ("tensor", "sequence", "yours") if each in held.index]:
        shape, sequence = plan.shape()._replace(samples=plan.samples * plan.gpus), strategy == "sequence"
        sizes = plan.hidden, plan.inner, plan.layers, plan.vocabulary
        weights = plan.element_bytes * held_elements(*sizes, plan.gpus) / MIB
        kept = kept_bytes(shape, plan.gpus, sequence, plan.element_bytes) / MIB
        counted = sent[sent["strategy"] == strategy].set_index("collective")
        due = traffic(shape, plan.gpus, sequence, plan.element_bytes)
        own = held.loc[strategy]
        calls = [Sent(str(name), int(row["calls"]), int(row["sent_bytes"])) for name, row in counted.iterrows()]
        rows.append(
            {
                "strategy": STRATEGIES.get(strategy, strategy),
                "weights, MiB": own["parameters_mib"],
                "by formula": weights,
                "activations, MiB": own["activations_mib"],
                "of them by formula": kept,
                **{f"{name} calls": int(counted["calls"].get(name, 0)) for name in _COLLECTIVES},
                "through the link, MiB": through_a_link(calls, plan.gpus) / MIB,
                "equal": sorted(calls) == sorted(due) and abs(own["parameters_mib"] / weights - 1) < 1e-6,
            }
        )
    return of_run(pd.DataFrame(rows), run)


_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")


def widths(run: Run) -> pd.DataFrame:
    """Return one row per strategy that sends and width: gradients_ms, how much longer than with nothing sent, theory.

    `longer_share` is of the time with nothing sent; `by_formula` is width_to_pay over the width, with the rate that the
    widest layers compute at and the datasheet's rate of the links; NaN where none is known. `gb_per_s`: what passed a
    link in the time that sending added, NaN where that is within the spread. Fact: `pays_from`, that width.
    """
    table, plan = _timed(run, ["strategy", "hidden"]), run.plan
    table["base"] = table["strategy"].str.removesuffix("_silent")
    silent = table[table["strategy"].str.endswith("silent")].set_index(["base", "hidden"])
    table = table[~table["strategy"].str.endswith("silent")].reset_index(drop=True)
    keys = pd.MultiIndex.from_frame(table[["base", "hidden"]])
    alone, spread = (silent[name].reindex(keys).to_numpy() for name in ("gradients_ms", "spread_gradients_ms"))
    table["silent_ms"] = alone
    table["longer_share"] = table["gradients_ms"] / alone - 1
    table["spread_longer_share"] = (table["spread_gradients_ms"] + spread * table["gradients_ms"] / alone) / alone
    widest = silent.reset_index().dropna(subset="gradients_ms").sort_values("hidden").tail(1)
    link = limits.ring_bus_limit_gb_per_s(run.datasheet) if run.datasheet else None
    pays_from = float("nan")
    if len(widest) and link:
        flop_per_s = _flop(plan, int(widest["hidden"].iloc[0])) / plan.gpus / (widest["gradients_ms"].iloc[0] / 1e3)
        pays_from = width_to_pay(flop_per_s, 1e9 * link, plan.gpus, plan.inner / plan.hidden, plan.element_bytes)
    table["by_formula"] = pays_from / table["hidden"]
    passed = [_passed_bytes(plan, row.hidden, row.strategy == "sequence") for row in table.itertuples()]
    rate = pd.Series(passed) / (table["gradients_ms"] - table["silent_ms"]) / 1e6
    table["gb_per_s"] = rate.where(table["longer_share"] > table["spread_longer_share"])
    for name in ("longer", "spread_longer"):
        table[f"{name}_percent"] = 100 * table[f"{name}_share"]
    return of_run(table, run, pays_from=pays_from)


def _passed_bytes(plan: Any, hidden: int, sequence: bool) -> float:
    """Return the bytes that a step sends through a link at this width."""
    sizes = {name: size for name, size in plan.sizes(hidden).items() if name != "heads"}
    shape = plan.shape()._replace(samples=plan.samples * plan.gpus, **sizes)
    return through_a_link(traffic(shape, plan.gpus, sequence, plan.element_bytes), plan.gpus)


def _flop(plan: Any, hidden: int) -> float:
    """Return the FLOP of forward and backward of all ranks' samples, matrices alone."""
    sizes = plan.sizes(hidden)
    tokens = plan.gpus * plan.samples * plan.sequence
    return 6 * tokens * matrices(hidden, sizes["inner"], plan.layers, plan.vocabulary)


def shares(ranks: tuple[int, ...] = (2, 4, 8), *, tflop_per_s: float, gb_per_s: float) -> pd.DataFrame:
    """Return one row per number of ranks and width: the percentage of a step that is sending, by formula."""
    rows = []
    for count in ranks:
        pays = width_to_pay(1e12 * tflop_per_s, 1e9 * gb_per_s, count)
        rows += [{"ranks": count, "width": width, "share_percent": 100 * pays / (pays + width)} for width in _WIDTHS]
    return of_source(pd.DataFrame(rows), f"theory: {tflop_per_s:g} TFLOP/s, bfloat16", gb_per_s=gb_per_s)


_WIDTHS = (1024, 2048, 4096, 8192, 16_384)
