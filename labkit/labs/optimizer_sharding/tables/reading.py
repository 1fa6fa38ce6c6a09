"""The published figures of a sharded optimizer re-computed: what could be saved, and what sending must cost."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.labs.optimizer_sharding.theory import MOVED_BYTES, STATE_BYTES, TEMPORARY_BYTES, sent_s
from labkit.node import limits
from labkit.provenance import of_source, sources
from labkit.theory.transformer import SIZES, transformer

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
    states = STATE_BYTES["adamw"] * elements * spared
    both = states + TEMPORARY_BYTES["adamw", "foreach"] * elements * spared
    table = pd.DataFrame(
        [
            {
                "elements": elements,
                "saving_gb": saving,
                "low_gb": saving - _ROUNDED_GB,
                "high_gb": saving + _ROUNDED_GB,
                "states_gb": states / 1e9,
                "both_gb": both / 1e9,
                "states_gib": states / 2**30,
                "both_gib": both / 2**30,
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
