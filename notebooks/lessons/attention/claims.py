"""What a report says of attention's times and memory, recomputed from physics, its own tables and our runs."""

from __future__ import annotations

from operator import eq, ge
from typing import Any

import pandas as pd

from labkit.engine.recordings import replay
from labkit.tables.claims import ClaimVerdict, Figures
from labkit.tables.published import published
from lessons.attention.tables import printed
from lessons.attention.tables.memory import compiled_gains
from lessons.attention.tables.speed import sweep
from lessons.attention.theory import SQUARES

RECORDED_GAINS = "h200/attention/compiled"
RECORDED_SWEEP = "h100/attention/sweep"
_WHOLE = 0.01  # agreement of a fitted count with a whole number
_AS_LONG = 1.1  # times another time: what takes less is said to take as long


def _times(phase: str) -> pd.DataFrame:
    table = printed.printed_times(published("attention"))
    return table[table["phase"] == phase]


def _flash() -> pd.DataFrame:
    return printed.printed_flash_times(published("flash_attention"))


def _span(values: Any, unit: str = "×", scale: float = 1.0) -> str:
    """Return the least and the most of the values with two digits: "1.1 to 1.6×"."""
    least, most = (f"{scale * value:.2g}" for value in (min(values), max(values)))
    return f"{least if least == most else f'{least} to {most}'}{unit}"


def _possible(*tables: pd.DataFrame) -> int:
    """Return how many of the times can be times of the work."""
    return sum(int((table["verdict"] == "ok").sum()) for table in tables)


def _longest_forward() -> pd.Series:
    table = _times("forward").query("sequence == 16384 and head_dim == 64 and implementation == 'by_hand'")
    return table.loc[table["ms"].idxmin()]


def _short_growth() -> pd.DataFrame:
    return printed.growth(_flash(), 128, 1024)


def _own_short_growth() -> pd.Series:
    """Return how much our recorded times grow, in the report's settings."""
    table = sweep(replay(RECORDED_SWEEP)).query("head_dim in (16, 64, 128) and sequence in (128, 1024)")
    ms = table.set_index(["precision", "head_dim", "phase", "sequence"])[["plain_ms", "flash_ms"]]
    grown = ms.xs(1024, level="sequence") / ms.xs(128, level="sequence")
    return pd.concat([grown["plain_ms"], grown["flash_ms"]])


def _follows(growth: pd.DataFrame) -> bool:
    return bool((growth["exponent"] >= 1).all())


def _twice() -> pd.Series:
    return printed.printed_backwards(_times("backward"))["ratio"]


def _gains(phase: str) -> pd.DataFrame:
    gains = compiled_gains(replay(RECORDED_GAINS), published("attention"))
    return gains[gains["phase"] == phase]


def _printed_memory() -> pd.Series:
    """Return the printed memory before backward at 16 384 positions and d = 64, and what the fit says of it."""
    return printed.printed_memory(published("attention")).query("sequence == 16384 and head_dim == 64").iloc[0]


def _speedups() -> pd.Series:
    return printed.printed_speedups(_flash()).query("phase == 'forward' and sequence == 32768")["speedup"]


def _own_speedups() -> pd.Series:
    """Return the same of our recorded sweep."""
    table = sweep(replay(RECORDED_SWEEP)).query("phase == 'forward' and sequence == 32768")
    return table["speed_up"].dropna()


def _precisions() -> pd.Series:
    """Return the times of float32 over those of bfloat16, of Triton's forward at 32 768 positions."""
    table = printed.printed_precisions(_flash())
    return table.query("implementation == 'flash' and phase == 'forward' and sequence == 32768")["ratio"]


def _own_precisions() -> pd.Series:
    """Return the same of our recorded sweep."""
    table = sweep(replay(RECORDED_SWEEP)).query("phase == 'forward' and sequence == 32768")
    ms = table.pivot_table(index="head_dim", columns="precision", values="flash_ms")
    return ms["float32"] / ms["bfloat16"]


def as_long(printed_ratios: pd.Series, own: pd.Series) -> ClaimVerdict:
    """Return whether float32 takes as long as bfloat16: open where only the report's kernel says so, and ours not."""
    if printed_ratios.max() >= _AS_LONG:
        return False
    return True if own.max() < _AS_LONG else None


def compares_launches(forwards: pd.DataFrame) -> ClaimVerdict:
    """Return the verdict on a gain: open where one of the times is shorter than its work, else ours decides."""
    if (forwards["verdict"] == "impossible").any():
        return None
    return bool((_gains("forward")["gain"] >= 1).all())


FIGURES = {
    "forward_times": Figures(
        lambda: len(_times("forward")),
        lambda: _possible(_times("forward")),
        eq,
    ),
    "forward_at_the_longest": Figures(
        lambda: _longest_forward()["ms"],
        lambda: _longest_forward()["least_ms"],
        ge,
    ),
    "waited_times": Figures(
        lambda: len(_times("backward")) + len(_flash()),
        lambda: _possible(_times("backward"), _flash()),
        eq,
    ),
    "compiled_forward": Figures(
        lambda: _span(_gains("forward")["printed_gain"]),
        lambda: _span(_gains("forward")["gain"]),
        lambda *_: compares_launches(_times("forward")),
    ),
    "memory_before_backward": Figures(
        lambda: _printed_memory()["memory_gb"],
        lambda: _printed_memory()["memory_gb"] - _printed_memory()["left_mb"] / 1e3,
        lambda *_: bool(abs(_printed_memory()["squares"] - SQUARES["by_hand"]["held"]) <= _WHOLE),
    ),
    "short_times": Figures(
        lambda: _span(_short_growth()["time"]),
        lambda: f"{_span(_short_growth()['work'])}; {_span(_own_short_growth())}",
        lambda *_: _follows(_short_growth()) or None,
    ),
    "backward_twice": Figures(
        lambda: _span(_twice()), lambda: "1×", lambda *_: bool(((_twice() - 1).abs() <= 0.1).all()) or None
    ),
    "triton_wins": Figures(
        lambda: _span(_speedups()),
        lambda: _span(_own_speedups()),
        lambda *_: bool(min(_speedups().min(), _own_speedups().min()) > 1),
    ),
    "precisions": Figures(
        lambda: _span(_precisions()),
        lambda: _span(_own_precisions()),
        lambda *_: as_long(_precisions(), _own_precisions()),
    ),
}
