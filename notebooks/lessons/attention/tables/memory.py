"""Rows → plain attention's times, the N×N matrices that are held, what fits in memory, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.provenance import made_from, of_run
from labkit.tables.rates import statuses
from labkit.theory.sizes import MIB
from lessons.attention.plan import WIDTH
from lessons.attention.tables.speed import physics
from lessons.attention.theory import (
    MOMENTS,
    SQUARES,
    linear_bytes,
    longest,
    mask_bytes,
    moment_bytes,
    square_bytes,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SETTING = ["implementation", "heads", "head_dim", "sequence", "precision", "causal"]
_PHASES = ("forward", "unsynchronised", "backward", "both")
_MEMORY = [f"{moment}_mib" for moment in MOMENTS]
_TENSORS = ["O", "L", "dQ", "dK", "dV"]
TOLERANCES = {"float32": 1e-3, "bfloat16": 1e-2}


def plain(run: Run) -> pd.DataFrame:
    """Return, per setting of a Plain run: the phases' ms, the memory's MiB, the status, and what physics says of it.

    `unsynchronised_ms` is what a clock shows that does not wait for the GPU; its verdict is of it as a forward's time.
    `forward_least_ms` and `backward_least_ms`: see `physics`.
    """
    table = _settings(run)
    for name, phase in (("forward", "forward"), ("backward", "backward"), ("unsynchronised", "forward")):
        checked = physics(table.assign(phase=phase, ms=table[f"{name}_ms"]))
        table[f"{phase}_least_ms"], table[f"{name}_verdict"] = checked["least_ms"], checked["verdict"]
    return _sourced(table, run)


def compiled_gains(run: Run, attention: pd.DataFrame) -> pd.DataFrame:
    """Return, per phase, head dimension and length of a Plain run with "compiled": eager's time over compiled's.

    `gain` is the run's (eager with torch's softmax), `printed_gain` that of the published attention.csv (eager with a
    softmax written by hand); NaN where either has no such setting.
    """
    keys = ["head_dim", "sequence"]
    measured = plain(run)
    recorded_rows = measured.set_index(keys)
    printed_rows = attention[attention["problem"] == "torch_compile"].set_index(keys)
    parts = []
    for phase in ("forward", "backward"):
        eager, compiled = (
            recorded_rows.loc[recorded_rows["implementation"] == name, f"{phase}_ms"] for name in ("plain", "compiled")
        )
        printed = [printed_rows.loc[printed_rows["mode"] == name, f"{phase}_seconds"] for name in ("eager", "compiled")]
        gains = pd.DataFrame({"gain": eager / compiled, "printed_gain": printed[0] / printed[1]})
        parts.append(gains.reset_index().assign(phase=phase))
    table = pd.concat(parts, ignore_index=True)[["phase", *keys, "gain", "printed_gain"]]
    return made_from(table, measured, attention)


def held(run: Run) -> pd.DataFrame:
    """Return, per setting of a Memory or Plain run, the MiB at each moment, measured and by formula, and the matrices.

    Moments (theory.MOMENTS): `kept`, `forward`, `held`, `backward`. For each: `_mib`, `_formula_mib`, `_squares`: what
    is left of the measured bytes without tensors, rows and mask, in N×N matrices of all heads, and `_due`: the same by
    formula. "compiled" has no formula; from its squares nothing is taken. `fits`: the longest sequence that by formula
    fits in this GPU. `exponent`: the power of N with which kept (compiled: held) grows from the length before. Fact:
    `gpu_mib`, the GPU's memory.
    """
    table = _settings(run).sort_values("sequence", kind="stable", ignore_index=True)
    table = table[[*_SETTING, "status", *_MEMORY]]
    points, on_gpu = list(table.itertuples()), run.plan.device == "cuda"
    square = pd.Series([square_bytes(*_sizes(row), row.heads) / MIB for row in points], table.index, dtype=float)
    for moment in MOMENTS:
        rest_mib = pd.Series([_rest_mib(row, moment) for row in points], table.index)
        table[f"{moment}_formula_mib"] = [_formula_mib(row, moment, on_gpu) for row in points]
        table[f"{moment}_squares"] = (table[f"{moment}_mib"] - rest_mib) / square
        table[f"{moment}_due"] = (table[f"{moment}_formula_mib"] - rest_mib) / square
    table["fits"] = [_fits(row, _gpu_mib(run)) for row in points]
    kept, lengths = table["kept_mib"].fillna(table["held_mib"]), table["sequence"].astype(float)
    same = [table[name] for name in ("implementation", "head_dim", "precision")]
    before, shorter = (column.groupby(same).shift() for column in (kept, lengths))
    table["exponent"] = np.log(kept / before) / np.log(lengths / shorter)
    return _sourced(table, run)


def errors(run: Run) -> pd.DataFrame:
    """Return, per implementation, precision and tensor: the worst error of all shapes beside the tolerance.

    `worst`: the largest |found − exact| / (1 + |exact|), in shape `shape` (queries × keys × head dimension). `share` is
    of the tolerance; `same_bits` says whether a second run gave the same bits in every shape.
    """
    rows, parts = run.rows, []
    for keys, group in rows[rows["status"] == "ok"].groupby(["implementation", "precision"], sort=False):
        for tensor in (name for name in _TENSORS if group[f"{name}_error"].notna().any()):
            worst = group.loc[group[f"{tensor}_error"].idxmax()]
            shape = f"{worst['queries']} × {worst['keys']} × {worst['head_dim']}"
            parts.append((*keys, tensor, worst[f"{tensor}_error"], shape, len(group), bool(group["same_bits"].all())))
    columns = ["implementation", "precision", "tensor", "worst", "shape", "shapes", "same_bits"]
    table = pd.DataFrame(parts, columns=columns)
    return _sourced(table.assign(share=table["worst"] / table["precision"].map(TOLERANCES)), run)


def _settings(run: Run) -> pd.DataFrame:
    """Return, per setting, the median ms of each phase, the MiB at each moment, the status, and the GPU's name."""
    rows = run.rows_with(["phase", "ms", "kept_bytes", *_MEMORY[1:]])
    rows["kept_mib"] = rows["kept_bytes"] / MIB
    ms = rows.pivot_table(index=_SETTING, columns="phase", values="ms", aggfunc="median")
    settings = rows.groupby(_SETTING, sort=False)
    table = settings[_MEMORY].max().join(ms.reindex(columns=_PHASES).add_suffix("_ms"))
    table["status"] = statuses(rows, _SETTING)
    table["gpu"] = run.node.gpus[0].name if run.plan.device == "cuda" else None
    return table.reset_index()


def _sizes(row) -> tuple[int, int, int]:
    return int(row.sequence), int(row.sequence), WIDTH[row.precision]


def _form(row) -> dict:
    return {"heads": int(row.heads), "causal": bool(row.causal)}  # Python's integers: numpy's overflow


def _formula_mib(row, moment: str, on_gpu: bool) -> float:
    if row.implementation not in SQUARES:
        return np.nan
    size = int(row.sequence), int(row.head_dim), WIDTH[row.precision]
    return moment_bytes(row.implementation, moment, *size, **_form(row), on_gpu=on_gpu) / MIB


def _rest_mib(row, moment: str) -> float:
    """Return a moment's MiB of all but N×N matrices; a mask is none of these."""
    if row.implementation not in SQUARES:
        return 0.0
    linear = linear_bytes(row.implementation, moment, row.sequence, row.head_dim, WIDTH[row.precision], row.heads)
    return (linear + mask_bytes(row.implementation, row.sequence, row.causal)) / MIB


def _fits(row, gpu_mib: float) -> float:
    if row.implementation not in SQUARES or np.isnan(gpu_mib):
        return np.nan
    return longest(row.implementation, gpu_mib * MIB, int(row.head_dim), WIDTH[row.precision], **_form(row))


def _gpu_mib(run: Run) -> float:
    return float((run.plan.device == "cuda" and run.node.gpus[0].memory_mib) or np.nan)


def _sourced(table: pd.DataFrame, run: Run) -> pd.DataFrame:
    return of_run(table, run, gpu_mib=_gpu_mib(run))
