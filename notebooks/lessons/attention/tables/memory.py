"""Rows → plain attention's times, the N×N matrices that are held, what fits in memory, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.provenance import fact, like, of_run
from lessons.attention.tables.speed import WIDTH, physics
from lessons.attention.theory import (
    MOMENTS,
    SQUARES,
    linear_bytes,
    longest,
    mask_bytes,
    moment_bytes,
    needed_bytes,
    square_bytes,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SETTING = ["implementation", "heads", "head_dim", "sequence", "precision", "causal"]
# In the order in which they are measured, and what to call the one that was not reached.
_PHASES = {
    "memory": "the first forward or backward",
    "forward": "forward",
    "unsynchronised": "forwards in a row",
    "backward": "backward",
    "both": "forward and backward",
}
_MEMORY = ["kept_mib", "forward_mib", "held_mib", "backward_mib", "reserved_mib"]
TENSORS = ["O", "L", "dQ", "dK", "dV"]
TOLERANCES = {"float32": 1e-3, "bfloat16": 1e-2}
_MIB, _GIB = 2**20, 2**30


def plain(run: Run) -> pd.DataFrame:
    """Return, per setting of a Plain run: the phases' ms, the memory's MiB, the status, and what physics says of it.

    `unsynchronised_ms` is what a clock shows that waits for nobody; its verdict is of it as a forward's time.
    `forward_least_ms` and `backward_least_ms`: see `physics`. `status` names the phase that ran out of memory.
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
    return like(table, measured, attention)


def held(run: Run) -> pd.DataFrame:
    """Return, per setting of a Memory or Plain run, the MiB at each moment, measured and by formula, and the matrices.

    Moments (theory.MOMENTS): `kept`, `forward`, `held`, `backward`. For each: `_mib`, `_formula_mib`, and `_squares`:
    what is left of the measured bytes without tensors, rows and mask, in N×N matrices of all heads. `due_squares`:
    those kept by formula. "compiled" has no formula; from its squares nothing is taken. `exponent`: the power of N with
    which kept (compiled: held) grows from the length before. A CPU knows what is kept, no more. Fact: `gpu_mib`, the
    GPU's memory.
    """
    table = _settings(run).sort_values("sequence", kind="stable", ignore_index=True)
    table = table[[*_SETTING, "status", *_MEMORY]]
    square = pd.Series(
        [
            square_bytes(row.sequence, row.sequence, WIDTH[row.precision], row.heads) / _MIB
            for row in table.itertuples()
        ],
        table.index,
        dtype=float,
    )
    for moment in MOMENTS:
        table[f"{moment}_formula_mib"] = [_formula_mib(row, moment) for row in table.itertuples()]
        rest_mib = [_rest_mib(row, moment) for row in table.itertuples()]
        table[f"{moment}_squares"] = (table[f"{moment}_mib"] - rest_mib) / square
    table["due_squares"] = [SQUARES.get(name, {}).get("kept", np.nan) for name in table["implementation"]]
    table["reserved_squares"] = table["reserved_mib"] / square
    table["square_mib"] = square
    kept, lengths = table["kept_mib"].fillna(table["held_mib"]), table["sequence"].astype(float)
    previous = [
        column.groupby([table[name] for name in ("implementation", "head_dim", "precision")]).shift()
        for column in (kept, lengths)
    ]
    table["exponent"] = np.log(kept / previous[0]) / np.log(lengths / previous[1])
    return _sourced(table, run)


def limit(run: Run) -> pd.DataFrame:
    """Return, per implementation and head dimension, the account of the shortest sequence that fails, or the longest.

    `ran` and `failed`: the longest sequence that ran and the shortest that did not (NaN: none). `sequence`: the one
    accounted for, by formula: `square_gib`, and `_squares` and `_gib` of forward, held and backward; `needed_gib` is
    backward's with Q, K, V and dO; `memory_gib` is the GPU's and `fits` the longest sequence that needs no more (NaN on
    a CPU). `reserved_squares`: what torch had set aside at `ran`, in N×N matrices of that length, where recorded.
    """
    table = held(run)
    memory_mib = fact(table, "gpu_mib")
    parts = []
    for (implementation, head_dim), rows in table.groupby(["implementation", "head_dim"], sort=False):
        if implementation not in SQUARES:
            continue
        ran, failed = rows[rows["status"] == "ok"], rows[rows["status"] != "ok"]
        explained = failed.iloc[0] if len(failed) else ran.iloc[-1]
        size = int(head_dim), WIDTH[explained["precision"]]  # Python's integers: numpy's overflow
        form = {"heads": int(explained["heads"]), "causal": bool(explained["causal"])}
        account = {
            "implementation": implementation,
            "head_dim": head_dim,
            "ran": ran["sequence"].max(),
            "failed": failed["sequence"].min(),
            "sequence": explained["sequence"],
            "memory_gib": memory_mib * _MIB / _GIB,
            "square_gib": explained["square_mib"] * _MIB / _GIB,
        }
        for moment in MOMENTS[1:]:
            account[f"{moment}_squares"] = SQUARES[implementation][moment]
            account[f"{moment}_gib"] = explained[f"{moment}_formula_mib"] * _MIB / _GIB
        account["needed_gib"] = needed_bytes(implementation, int(explained["sequence"]), *size, **form) / _GIB
        account["fits"] = longest(implementation, memory_mib * _MIB, *size, **form) if memory_mib > 0 else np.nan
        parts.append(account | {"reserved_squares": ran["reserved_squares"].iloc[-1] if len(ran) else np.nan})
    return _sourced(pd.DataFrame(parts), run)


def errors(run: Run) -> pd.DataFrame:
    """Return, per implementation, precision and tensor: the worst error of all shapes beside the tolerance.

    `worst`: the largest |found − exact| / (1 + |exact|), in shape `shape` (queries × keys × head dimension). `share` is
    of the tolerance; `same_bits` says whether a second run gave the same bits in every shape.
    """
    rows, parts = run.rows, []
    for (implementation, precision), group in rows[rows["status"] == "ok"].groupby(
        ["implementation", "precision"], sort=False
    ):
        for tensor in (name for name in TENSORS if group[f"{name}_error"].notna().any()):
            worst = group.loc[group[f"{tensor}_error"].idxmax()]
            shape = f"{worst['queries']} × {worst['keys']} × {worst['head_dim']}"
            parts.append(
                {
                    "implementation": implementation,
                    "precision": precision,
                    "tensor": tensor,
                    "worst": worst[f"{tensor}_error"],
                    "tolerance": TOLERANCES[precision],
                    "shape": shape,
                    "shapes": len(group),
                    "same_bits": bool(group["same_bits"].all()),
                }
            )
    table = pd.DataFrame(parts)
    return _sourced(table.assign(share=table["worst"] / table["tolerance"]), run)


def _settings(run: Run) -> pd.DataFrame:
    """Return, per setting, the median ms of each phase, the MiB at each moment, the status, and the GPU's name."""
    rows = run.rows.reindex(columns=[*dict.fromkeys([*run.rows, "phase", "ms", "kept_bytes", *_MEMORY])])
    rows["kept_mib"] = rows["kept_bytes"] / _MIB
    ms = rows.pivot_table(index=_SETTING, columns="phase", values="ms", aggfunc="median")
    settings = rows.groupby(_SETTING, sort=False)
    table = settings[_MEMORY].max().join(ms.reindex(columns=[*_PHASES][1:]).add_suffix("_ms"))
    table["status"] = [_status(group) for _, group in settings]
    table["gpu"] = run.node.gpus[0].name if run.plan.device == "cuda" else None
    return table.reset_index()


def _status(rows: pd.DataFrame) -> str:
    failed = next((status for status in rows["status"] if status != "ok"), None)
    if failed is None:
        return "ok"
    return f"{failed} in {next(name for phase, name in _PHASES.items() if phase not in set(rows['phase']))}"


def _formula_mib(row, moment: str) -> float:
    if row.implementation not in SQUARES:
        return np.nan
    bytes_ = moment_bytes(
        row.implementation, moment, row.sequence, row.head_dim, WIDTH[row.precision], heads=row.heads, causal=row.causal
    )
    return bytes_ / _MIB


def _rest_mib(row, moment: str) -> float:
    """Return a moment's MiB of all but N×N matrices; a mask is none of these."""
    if row.implementation not in SQUARES:
        return 0.0
    linear = linear_bytes(row.implementation, moment, row.sequence, row.head_dim, WIDTH[row.precision], row.heads)
    return (linear + mask_bytes(row.implementation, row.sequence, row.causal)) / _MIB


def _sourced(table: pd.DataFrame, run: Run) -> pd.DataFrame:
    gpu_mib = run.node.gpus[0].memory_mib if run.plan.device == "cuda" else np.nan
    return of_run(table, run, gpu_mib=gpu_mib)
