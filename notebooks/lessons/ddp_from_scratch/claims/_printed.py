"""The printed steps that several claims read, and the size of the model that was trained."""

from __future__ import annotations

import pandas as pd

from labkit.engine.run import replay
from labkit.tables.published import published
from labkit.theory.transformer import SIZES, transformer
from lessons.ddp_from_scratch.tables.steps import implementations

REPORT = "cs336-a2"
RUNS = "h200x2/ddp_from_scratch/"
MODEL = transformer(*SIZES["xl"][:3])
GRADIENT_BYTES = 4 * MODEL.parameters  # float32; each of two GPUs sends as much in a ring


def step_s(implementation: str, bucket_mb: float | None = None, column: str = "step_seconds") -> float:
    """Return a printed time in seconds; NaN for a word such as "OOM"."""
    table = published("ddp_from_scratch")
    rows = table[table["implementation"] == implementation]
    rows = rows if bucket_mb is None else rows[rows["bucket_mb"] == bucket_mb]
    return float(pd.to_numeric(rows[column], errors="coerce").iloc[0])


def sent_s(implementation: str) -> float:
    """Return a printed communication time in seconds."""
    return step_s(implementation, column="communication_seconds")


def noise() -> float:
    """Return how far the two printed steps of one configuration, naive, are apart, as a share of the smaller one."""
    steps = naive_steps()
    return max(steps) / min(steps) - 1


def recorded_steps(positions: int) -> pd.DataFrame:
    """Return our recorded steps on 2 × H200 at the report's batch, 32 sequences, with this number of positions."""
    return implementations(replay(f"{RUNS}report_{positions}"))


def naive_steps() -> tuple[float, float]:
    """Return naive's two printed steps: of the first table, and of the table beside overlapped gradients."""
    return step_s("naive"), step_s("individual")


def band_s() -> float:
    """Return the seconds by which naive's two printed steps differ: printed times that are closer have no order."""
    first, again = naive_steps()
    return abs(first - again)


def longer_than_naive(printed_s: float) -> bool | None:
    """Return whether a printed step is longer than both naive steps by more than `band_s`, or shorter; else None."""
    differences_s = [printed_s - naive_s for naive_s in naive_steps()]
    if min(map(abs, differences_s)) <= band_s() or min(differences_s) < 0 < max(differences_s):
        return None
    return differences_s[0] > 0


def inverted(verdict: bool | None) -> bool | None:
    """Return the verdict of the opposite claim."""
    return None if verdict is None else not verdict
