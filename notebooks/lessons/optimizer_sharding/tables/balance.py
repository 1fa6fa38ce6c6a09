"""Who owns how much, what ZeRO's stages hold and send, equality and symptoms, and what a report prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.node import limits
from labkit.provenance import of_run, of_source, sources
from labkit.tables.rows import entries
from labkit.theory.transformer import SIZES, transformer
from lessons.optimizer_sharding.tables.measured import sizes
from lessons.optimizer_sharding.theory import (
    MOVED_BYTES,
    RULES,
    STAGES,
    STATE_BYTES,
    TEMPORARY_BYTES,
    excess,
    least_excess,
    loads,
    sent_s,
    stage,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run

_WIDE = 128_256  # words of Llama 3's vocabulary, under the smallest model


def balance(ranks: tuple[int, ...] = (2, 3, 4, 8)) -> pd.DataFrame:
    """Return one row per model, number of ranks and rule: how much more than an equal part the fullest rank has.

    `excess`: the fullest rank's elements over an equal part, less one. `least_excess`: what no assignment of whole
    parameters goes below. Models: the course's five, and its smallest with a vocabulary of 128 256 words.
    """
    models = {name: transformer(*size[:3]) for name, size in SIZES.items()}
    models["small, 128 k words"] = transformer(*SIZES["small"][:3], vocabulary=_WIDE)
    rows = []
    for name, model in models.items():
        elements = [math.prod(shape) for shape in model.shapes]
        for count in ranks:
            rows += [
                {
                    "model": name,
                    "ranks": count,
                    "rule": rule,
                    "excess": excess(loads(elements, count, rule)),
                    "least_excess": least_excess(elements, count),
                }
                for rule in RULES
            ]
    return of_source(pd.DataFrame(rows), "theory: the course's transformers, vocabulary 10 000 unless told")


def owned(run: Run) -> pd.DataFrame:
    """Return one row per way: the fullest and emptiest rank's states as shares of the whole, the fullest's excess.

    Shares are of bytes that the ranks' tensors hold after the last update, over all states of the model.
    """
    rows = entries(run, "memory")
    last = rows[(rows["moment"] == "after update") & (rows["step"] == rows["step"].max())]
    last = last[last["kernel"] == last["kernel"].iloc[0]]
    whole = STATE_BYTES["adamw"] * sum(sizes(run.plan)) / 2**20
    shares = (last["states_mib"] / whole).groupby(last["way"], sort=False).agg(["max", "min"])
    table = shares.rename(columns={"max": "fullest", "min": "emptiest"}).reset_index()
    table["excess"] = table["fullest"] * run.plan.gpus - 1
    return of_run(table, run)


_GIB = 2**30
_COUNTS = (1, 2, 4, 8, 16, 32, 64)


def stages(size: str = "xl", ranks: int = 2, state_bytes: int = 8, precision: str = "float32") -> pd.DataFrame:
    """Return one row per stage: GiB per rank of parameters, gradients, states and all, and GB sent per link and step.

    `volume` is what is sent in units of all parameters' bytes, (N−1)/N taken as one.
    """
    elements = transformer(*SIZES[size][:3]).parameters
    rows = []
    for name in STAGES:
        held = stage(name, elements, ranks, state_bytes, precision)
        unit = stage("ddp", elements, ranks, state_bytes, precision).parameters * (ranks - 1) / ranks
        rows.append(
            {
                "stage": name,
                "parameters_gib": held.parameters / _GIB,
                "gradients_gib": held.gradients / _GIB,
                "states_gib": held.states / _GIB,
                "held_gib": held.held / _GIB,
                "sent_gb": held.sent / 1e9,
                "volume": held.sent / unit if unit else 0.0,
            }
        )
    return of_source(pd.DataFrame(rows), f"theory: {size}, {ranks} ranks, {precision}", ranks=ranks)


def by_ranks(size: str = "xl", state_bytes: int = 8, precision: str = "float32") -> pd.DataFrame:
    """Return one row per stage and number of ranks: GiB that a rank holds."""
    tables = [stages(size, ranks, state_bytes, precision).assign(ranks=ranks) for ranks in _COUNTS]
    table = pd.concat(tables, ignore_index=True)[["stage", "ranks", "held_gib"]]
    return of_source(table, f"theory: {size}, {precision}")


_SAME = 1e-6
SYMPTOMS = {"state_share": "max", "error": "max", "first_error": "max", "drift": "max", "saved": "min"}


def equality(run: Run) -> pd.DataFrame:
    """Return one row per optimizer and case: largest `error` and `drift` over the ranks, `moved`, `asked`, `equal`.

    Equal is an error of at most 1e-6 of a tensor's largest number, after weights have moved by much more.
    """
    rows = entries(run, "equality")
    shown = {"error": "max", "drift": "max", "moved": "min", "asked": "max", "state_share": "max"}
    table = rows.groupby(["optimizer", "case"], sort=False).agg(shown).reset_index()
    table["equal"] = (table["error"] <= _SAME) & (table["drift"] <= _SAME) & (table["moved"] > 1000 * _SAME)
    return of_run(table, run)


def symptoms(run: Run) -> pd.DataFrame:
    """Return one row per variant: the fullest rank's share of the states, all shares together, the worst of the rest.

    `first_error` is after one step, `error` after all; `saved` is the share of a state_dict's numbers that are right.
    """
    rows = entries(run, "trial")
    grouped = rows.groupby("variant", sort=False)
    table = grouped.agg(SYMPTOMS).rename(columns={"state_share": "fullest"})
    table.insert(1, "together", grouped["state_share"].sum())
    return of_run(table.assign(ranks=run.plan.gpus).reset_index(), run)


def faults(row: dict) -> list[str]:
    """Return the names of the bugs that a variant's symptoms show; "wrong" where it is none that is known."""
    names = []
    if row["fullest"] > 1.05 / row["ranks"]:
        # Shares that add up to one state of each are shared out, if unevenly.
        names.append("by_count" if row["together"] < 1.05 else "shards_nothing")
    if row["drift"] > _SAME:
        names.append("sends_nothing")
    elif row["first_error"] > _SAME:
        names.append("wrong")
    elif row["error"] > _SAME:
        names.append("stale_rate")
    if row["saved"] < 0.99:
        names.append("own_part")
    return names


_GPU: Any = limits.spec("NVIDIA H100 80GB HBM3")
_RANKS, _MODEL = 2, "xl"
_ROUNDED_GB = 1.0  # two printed whole numbers, each half a unit off at most


def read_report(published: pd.DataFrame) -> pd.DataFrame:
    """Return one row: what a report prints of XL under AdamW on two H100s, and what can be.

    `saving_gb`: printed, in its unit; `low_gb` and `high_gb` what rounding allows. `states_gb` and `both_gb`: what
    sharding states, or also the temporaries of torch's many kernels, can save (1e9 bytes); `states_gib`, `both_gib`
    in 2^30. `needed_parameters`: elements of which the states alone would save that much. `faster_ms`: printed.
    `update_saved_ms` and `fused_saved_ms`: by how much the update's traffic through memory shrinks at the datasheet's
    rate, with many kernels or one; `gather_ms` and `broadcast_ms`: the least that sending parameters adds.
    """
    rows = published.set_index("sharded")
    with_it, without = rows.loc["yes"], rows.loc["no"]
    elements, spared = transformer(*SIZES[_MODEL][:3]).parameters, 1 - 1 / _RANKS
    saving = float(without["peak_gb"] - with_it["peak_gb"])
    states_bytes = STATE_BYTES["adamw"] * elements * spared
    both_bytes = states_bytes + TEMPORARY_BYTES["adamw", "foreach"] * elements * spared
    table = pd.DataFrame(
        [
            {
                "elements": elements,
                "saving_gb": saving,
                "low_gb": saving - _ROUNDED_GB,
                "high_gb": saving + _ROUNDED_GB,
                "states_gb": states_bytes / 1e9,
                "both_gb": both_bytes / 1e9,
                "states_gib": states_bytes / 2**30,
                "both_gib": both_bytes / 2**30,
                "needed_parameters": saving * 1e9 / (STATE_BYTES["adamw"] * spared),
                "faster_ms": 1e3 * float(without["step_seconds"] - with_it["step_seconds"]),
                "step_ms": 1e3 * float(without["step_seconds"]),
                **{
                    f"{name}_saved_ms": _moved_ms(elements * spared, kernel)
                    for name, kernel in (("update", "foreach"), ("fused", "fused"))
                },
                "gather_ms": 1e3 * sent_s(elements, _RANKS, _GPU.nvlink_gb_per_s, in_turn=False),
                "broadcast_ms": 1e3 * sent_s(elements, _RANKS, _GPU.nvlink_gb_per_s, in_turn=True),
            }
        ]
    )
    return of_source(table, f"{sources(published)} · theory")


def _moved_ms(elements: float, kernel: str) -> float:
    return 1e3 * limits.least_seconds_to_move(MOVED_BYTES["adamw", kernel] * elements, _GPU.hbm_gb_per_s)
